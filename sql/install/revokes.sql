-- What grant_producer and grant_operator give, on every storage that there is: a role may have been given a storage that is no longer
-- in use. Keep this and grants.sql alike; a test compares privileges before a grant and after its revocation.
CREATE FUNCTION awa_ingest.granted(kind text) RETURNS TABLE (class regclass, object oid, privilege text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH storage AS (
        SELECT namespace.oid
          FROM pg_namespace AS namespace
         WHERE 3 = (SELECT count(*) FROM pg_class AS class
                     WHERE class.relnamespace = namespace.oid AND class.relkind IN ('r', 'p')
                       AND class.relname IN ('ready_entries', 'queue_lanes', 'queue_enqueue_heads'))
    ), place (name, schema) AS (
        SELECT namespace.nspname::text, namespace.oid FROM pg_namespace AS namespace WHERE namespace.nspname IN ('awa', 'awa_ingest')
        UNION ALL
        SELECT 'storage', storage.oid FROM storage
        UNION ALL
        -- Of a partitioned table alone.
        SELECT 'parent', storage.oid FROM storage
        UNION ALL
        SELECT 'parent of awa_ingest', namespace.oid FROM pg_namespace AS namespace WHERE namespace.nspname = 'awa_ingest'
    ), wanted_relation (kind, place, name, privileges) AS (VALUES
        ('producer', 'awa', 'ingest', 'INSERT, SELECT'), ('producer', 'awa', 'ingest_skip_conflicts', 'INSERT, SELECT'),
        ('both', 'awa', 'storage_transition_state', 'SELECT'), ('both', 'awa', 'runtime_storage_backends', 'SELECT'),
        ('both', 'awa', 'schema_version', 'SELECT'),
        ('producer', 'awa', 'job_unique_claims', 'SELECT, INSERT'), ('producer', 'awa', 'queue_meta', 'SELECT'),
        ('producer', 'awa', 'jobs_hot', 'INSERT'), ('producer', 'awa', 'scheduled_jobs', 'INSERT'),
        ('producer', 'awa', 'admin_dirty_queue_marks', 'INSERT'), ('producer', 'awa', 'admin_dirty_kind_marks', 'INSERT'),
        ('producer', 'awa', 'jobs_id_seq', 'USAGE'),
        ('producer', 'awa_ingest', 'job_unique_claims', 'SELECT, INSERT'), ('producer', 'awa_ingest', 'queue_meta', 'SELECT'),
        ('producer', 'storage', 'queue_ring_state', 'SELECT'), ('producer', 'storage', 'queue_lanes', 'SELECT'),
        ('producer', 'storage', 'queue_enqueue_heads', 'SELECT, INSERT'), ('producer', 'storage', 'deferred_jobs', 'INSERT'),
        ('producer', 'storage', 'job_id_seq', 'USAGE'), ('producer', 'storage', 'ready_entries', 'INSERT'),
        ('producer', 'storage', 'ready_segments', 'INSERT'), ('producer', 'parent', 'ready_segments', 'SELECT'),
        ('operator', 'parent of awa_ingest', 'ready_entries', 'SELECT, DELETE'),
        ('operator', 'parent of awa_ingest', 'deferred_jobs', 'SELECT, DELETE'),
        ('operator', 'parent of awa_ingest', 'job_unique_claims', 'SELECT, DELETE'),
        ('operator', 'parent of awa_ingest', 'ready_segments', 'SELECT, INSERT, DELETE'),
        ('operator', 'parent of awa_ingest', 'queue_lanes', 'SELECT'), ('operator', 'parent of awa_ingest', 'queue_meta', 'SELECT'),
        ('operator', 'awa_ingest', 'workers', 'SELECT'), ('operator', 'awa_ingest', 'lanes', 'SELECT'),
        ('operator', 'awa_ingest', 'rings', 'SELECT'), ('operator', 'awa_ingest', 'ingest_stats', 'SELECT'),
        ('operator', 'awa_ingest', 'maintenance_runs', 'SELECT'), ('operator', 'awa_ingest', 'stalled_lanes', 'SELECT'),
        ('operator', 'awa_ingest', 'maintenance_records', 'SELECT, INSERT, UPDATE, DELETE'),
        ('operator', 'storage', 'deferred_jobs', 'SELECT'), ('operator', 'storage', 'dlq_entries', 'SELECT'),
        ('operator', 'storage', 'queue_enqueue_heads', 'SELECT, INSERT, UPDATE, DELETE'),
        ('operator', 'storage', 'queue_claim_heads', 'SELECT, INSERT, UPDATE, DELETE'),
        ('operator', 'storage', 'queue_ring_state', 'SELECT, UPDATE'), ('operator', 'storage', 'queue_ring_slots', 'SELECT, UPDATE'),
        ('operator', 'storage', 'lease_ring_state', 'SELECT, UPDATE'), ('operator', 'storage', 'lease_ring_slots', 'SELECT, UPDATE'),
        ('operator', 'storage', 'claim_ring_state', 'SELECT, UPDATE'), ('operator', 'storage', 'claim_ring_slots', 'SELECT, UPDATE'),
        ('operator', 'storage', 'ready_entries', 'SELECT, TRUNCATE'), ('operator', 'storage', 'ready_segments', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'ready_tombstones', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'ready_claim_attempt_batches', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'done_entries', 'SELECT, INSERT, TRUNCATE'),
        ('operator', 'storage', 'receipt_completion_batches', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'receipt_completion_tombstones', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'queue_terminal_count_deltas', 'SELECT, INSERT, TRUNCATE'),
        ('operator', 'storage', 'leases', 'SELECT, TRUNCATE'), ('operator', 'storage', 'lease_claims', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'lease_claim_batches', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'lease_claim_closures', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'lease_claim_closure_batches', 'SELECT, TRUNCATE'),
        ('operator', 'storage', 'queue_terminal_live_counts', 'SELECT, INSERT, UPDATE, DELETE'),
        ('operator', 'storage', 'queue_terminal_rollups', 'SELECT, INSERT, UPDATE')
    ), wanted_function (kind, name) AS (VALUES
        ('both', 'status'), ('both', 'provision_lane'),
        ('producer', 'enqueue'), ('producer', 'enqueue_batch'), ('producer', 'enqueue_columns'), ('producer', 'enqueue_csv'),
        ('producer', 'last_ingest'), ('producer', 'last_ingest_summary'), ('producer', 'insert_jobs_compat_batch'),
        ('producer', 'insert_many_skip_unique_conflicts'), ('producer', 'last_ingest_jobs'),
        ('operator', 'run_maintenance'), ('operator', 'analyze_relation'), ('operator', 'start_worker'), ('operator', 'stop_worker'),
        ('operator', 'reset_ingest_stats'), ('operator', 'lane_sequence_problems'), ('operator', 'repair_lane_sequence'),
        ('operator', 'sequence_position'), ('operator', 'lane_states'), ('operator', 'ring_slots'), ('operator', 'read_ingest_stats'),
        ('operator', 'stalled_lane_states'), ('operator', 'read_maintenance_runs'), ('operator', 'last_failed_run'),
        ('operator', 'discard'), ('operator', 'discard_queue')
    ), relation AS (
        SELECT wanted.privileges, COALESCE(part.relid, class.oid) AS oid
          FROM wanted_relation AS wanted
          JOIN place ON place.name = wanted.place
          JOIN pg_class AS class ON class.relnamespace = place.schema AND class.relname = wanted.name
          LEFT JOIN LATERAL pg_partition_tree(class.oid) AS part ON wanted.place NOT LIKE 'parent%'
         WHERE wanted.kind IN (granted.kind, 'both')
        UNION ALL
        -- The lanes' sequences follow the head tables.
        SELECT 'SELECT, USAGE, UPDATE', class.oid
          FROM storage
          JOIN pg_class AS class ON class.relnamespace = storage.oid AND class.relkind = 'S'
         WHERE class.relname ~ CASE granted.kind WHEN 'operator' THEN '^queue_(enqueue|claim)_seq_[0-9a-f]{32}$'
                                                 ELSE '^queue_enqueue_seq_[0-9a-f]{32}$'
                               END
    )
    SELECT 'pg_class'::regclass, relation.oid, privilege FROM relation, regexp_split_to_table(relation.privileges, ', ') AS privilege
    UNION
    SELECT 'pg_namespace'::regclass, place.schema, 'USAGE' FROM place
    UNION
    SELECT 'pg_proc'::regclass, function.oid, 'EXECUTE'
      FROM wanted_function AS wanted
      JOIN pg_extension AS extension ON extension.extname = 'awa_ingest'
      JOIN pg_proc AS function ON function.proname = wanted.name AND function.proowner = extension.extowner
      JOIN place ON place.schema = function.pronamespace AND place.name IN ('awa', 'awa_ingest')
     WHERE wanted.kind IN (granted.kind, 'both')
    UNION
    SELECT 'pg_proc'::regclass, function.oid, 'EXECUTE'
      FROM storage
      JOIN pg_proc AS function ON function.pronamespace = storage.oid AND function.proname = 'sequence_next_value'
     WHERE granted.kind = 'operator' AND function.proargtypes = '25'::oidvector
$$;
REVOKE ALL ON FUNCTION awa_ingest.granted(text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.granted(text) IS
    'Objects and privileges that awa_ingest.grant_producer() or grant_operator() gives (producer, operator), on all storages';

-- Takes what grant_ and kind gave, but for what the other kind of grant gave the role as well. Of privileges with the same object and
-- grantor there is one only, however often it was given.
CREATE FUNCTION awa_ingest.revoke_granted(kind text, role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    holder oid;
    other text := CASE kind WHEN 'producer' THEN 'operator' END;
    marker regclass := to_regclass('awa.ingest');
    given record;
BEGIN
    SELECT oid INTO holder FROM pg_roles WHERE rolname = role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role "%" does not exist', role USING ERRCODE = 'undefined_object';
    END IF;
    -- What only the other grant gives tells whether the role has that.
    IF kind = 'operator' AND EXISTS (SELECT FROM pg_class AS class, aclexplode(class.relacl) AS acl
                                      WHERE class.oid = marker AND acl.grantee = holder AND acl.privilege_type = 'INSERT') THEN
        other := 'producer';
    ELSIF kind = 'producer' AND NOT EXISTS (
            SELECT FROM pg_proc AS function, aclexplode(function.proacl) AS acl
             WHERE function.oid = 'awa_ingest.run_maintenance(text)'::regprocedure AND acl.grantee = holder) THEN
        other := NULL;
    END IF;
    FOR given IN
        WITH taken AS (
            SELECT listed.class, listed.object, listed.privilege FROM awa_ingest.granted(kind) AS listed
            EXCEPT
            SELECT listed.class, listed.object, listed.privilege FROM awa_ingest.granted(other) AS listed WHERE other IS NOT NULL
        ), held AS (
            SELECT 'pg_class'::regclass AS class, class.oid AS object, class.relacl AS acl,
                   CASE class.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || class.oid::regclass::text AS name
              FROM pg_class AS class
            UNION ALL
            SELECT 'pg_proc'::regclass, function.oid, function.proacl, 'FUNCTION ' || function.oid::regprocedure::text
              FROM pg_proc AS function
            UNION ALL
            SELECT 'pg_namespace'::regclass, namespace.oid, namespace.nspacl, 'SCHEMA ' || quote_ident(namespace.nspname)
              FROM pg_namespace AS namespace
        )
        SELECT held.name, string_agg(DISTINCT taken.privilege, ', ') AS privileges
          FROM taken
          JOIN held ON held.class = taken.class AND held.object = taken.object
         CROSS JOIN LATERAL aclexplode(held.acl) AS acl
         WHERE acl.grantee = holder AND acl.privilege_type = taken.privilege
         GROUP BY held.name
         ORDER BY held.name
    LOOP
        EXECUTE format('REVOKE %s ON %s FROM %I', given.privileges, given.name, role);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION awa_ingest.revoke_granted(text, text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.revoke_granted(text, text) IS 'What awa_ingest.revoke_producer() and revoke_operator() do';

CREATE FUNCTION awa_ingest.revoke_producer(role text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT awa_ingest.revoke_granted('producer'::text, role) $$;
REVOKE ALL ON FUNCTION awa_ingest.revoke_producer(text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.revoke_producer(text) IS
    'Takes back what awa_ingest.grant_producer() gave a role, on all storages, but for what it has as an operator';

CREATE FUNCTION awa_ingest.revoke_operator(role text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT awa_ingest.revoke_granted('operator'::text, role) $$;
REVOKE ALL ON FUNCTION awa_ingest.revoke_operator(text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.revoke_operator(text) IS
    'Takes back what awa_ingest.grant_operator() gave a role, on all storages, but for what it has as a producer';
