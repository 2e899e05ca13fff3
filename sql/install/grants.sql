-- Exactly what enqueueing needs, on the storage that is in use now: run it again after awa was installed or migrated.
-- INSERT on the head tables is what lane sequences derive their privileges from; the rows themselves come from provision_lane.
CREATE FUNCTION awa_ingest.grant_producer(role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    status record;
    grantee text;
    storage text;
    shared text;
    relation regclass;
    routine regprocedure;
BEGIN
    SELECT quote_ident(rolname) INTO grantee FROM pg_roles WHERE rolname = role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role "%" does not exist', role USING ERRCODE = 'undefined_object';
    END IF;
    SELECT * INTO status FROM awa_ingest.status();
    -- A damaged sequence is no reason to withhold rights.
    IF status.storage_schema IS NULL THEN
        RAISE EXCEPTION '%', status.problem USING ERRCODE = 'object_not_in_prerequisite_state', HINT = status.hint;
    END IF;
    storage := quote_ident(status.storage_schema);
    shared := CASE status.mode WHEN 'attached' THEN 'awa' ELSE 'awa_ingest' END;

    EXECUTE format('GRANT USAGE ON SCHEMA awa, awa_ingest, %s TO %s', storage, grantee);
    EXECUTE format('GRANT EXECUTE ON FUNCTION
        awa.enqueue(text, jsonb, text, integer, integer, timestamptz, jsonb, text[], anycompatible, text, text),
        awa.enqueue(varchar, awa_ingest.json_text, text, bigint, bigint, timestamptz, awa_ingest.json_text, text[], anycompatible, text, text),
        awa.enqueue_batch(text, text),
        awa.enqueue_batch(json, text),
        awa.enqueue_batch(jsonb, text),
        awa.enqueue_columns(
            text[], anycompatiblearray, text[], integer[], integer[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], text),
        awa.enqueue_csv(bytea, text, boolean, text, text, text[]),
        awa.enqueue_csv(text, text, boolean, text, text, text[]),
        awa.last_ingest(),
        awa.last_ingest_summary(),
        awa_ingest.status(),
        awa_ingest.provision_lane(text, smallint, smallint) TO %s', grantee);
    -- SELECT is what RETURNING asks for; nothing can be read.
    EXECUTE format('GRANT INSERT, SELECT ON awa.ingest, awa.ingest_skip_conflicts TO %s', grantee);
    -- Made by attach(), where it was called.
    FOR routine IN
        SELECT function.oid
          FROM pg_proc AS function
          JOIN pg_extension AS extension ON extension.extname = 'awa_ingest' AND extension.extowner = function.proowner
         WHERE function.pronamespace = 'awa_ingest'::regnamespace
           AND function.proname IN ('insert_jobs_compat_batch', 'insert_many_skip_unique_conflicts', 'last_ingest_jobs')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', routine, grantee);
    END LOOP;
    IF status.mode = 'attached' THEN
        EXECUTE format('GRANT SELECT ON awa.storage_transition_state, awa.runtime_storage_backends, awa.schema_version TO %s', grantee);
    END IF;
    IF status.engine = 'canonical' THEN
        -- The tables and what their triggers write, with the caller's rights.
        EXECUTE format('GRANT SELECT, INSERT ON awa.job_unique_claims TO %s', grantee);
        EXECUTE format('GRANT SELECT ON awa.queue_meta TO %s', grantee);
        EXECUTE format('GRANT INSERT ON awa.jobs_hot, awa.scheduled_jobs, awa.admin_dirty_queue_marks, awa.admin_dirty_kind_marks TO %s',
            grantee);
        EXECUTE format('GRANT USAGE ON SEQUENCE awa.jobs_id_seq TO %s', grantee);
        RETURN;
    END IF;

    EXECUTE format('GRANT SELECT ON %1$s.queue_ring_state, %1$s.queue_lanes, %2$s.queue_meta TO %3$s', storage, shared, grantee);
    EXECUTE format('GRANT SELECT, INSERT ON %1$s.queue_enqueue_heads, %2$s.job_unique_claims TO %3$s', storage, shared, grantee);
    EXECUTE format('GRANT INSERT ON %1$s.deferred_jobs TO %2$s', storage, grantee);
    -- Where a lane ends: a sequence that was set back is noticed before it hands out a position again.
    EXECUTE format('GRANT SELECT ON %1$s.ready_segments TO %2$s', storage, grantee);
    EXECUTE format('GRANT USAGE ON SEQUENCE %1$s.job_id_seq TO %2$s', storage, grantee);

    FOR relation IN
        SELECT tree.relid FROM pg_partition_tree(format('%s.ready_entries', storage)::regclass) AS tree
        UNION ALL
        SELECT tree.relid FROM pg_partition_tree(format('%s.ready_segments', storage)::regclass) AS tree
    LOOP
        EXECUTE format('GRANT INSERT ON %s TO %s', relation, grantee);
    END LOOP;
    -- By their names: to read the heads would run code of their owner with the rights of who grants.
    FOR relation IN
        SELECT class.oid FROM pg_class AS class
         WHERE class.relnamespace = to_regnamespace(storage) AND class.relkind = 'S' AND class.relname ~ '^queue_enqueue_seq_[0-9a-f]{32}$'
    LOOP
        EXECUTE format('GRANT SELECT, USAGE, UPDATE ON SEQUENCE %s TO %s', relation, grantee);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION awa_ingest.grant_producer(text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.grant_producer(text) IS
    'Grants a role what enqueueing needs and nothing more, on the storage that is in use';

-- Exactly what operating needs, on the storage that is in use now: run it again after awa was installed or migrated. Nothing of it lets
-- enqueue; but what prune moves and throws away may be read and thrown away by hand.
-- The rights on the head tables are what analyze_relation asks for; the lanes' sequences follow them, as everywhere.
CREATE FUNCTION awa_ingest.grant_operator(role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    status record;
    grantee text;
    storage text;
    part text;
    relation regclass;
    routine regprocedure;
BEGIN
    SELECT quote_ident(rolname) INTO grantee FROM pg_roles WHERE rolname = role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role "%" does not exist', role USING ERRCODE = 'undefined_object';
    END IF;
    SELECT * INTO status FROM awa_ingest.status();
    -- A damaged sequence is no reason to withhold rights.
    IF status.storage_schema IS NULL THEN
        RAISE EXCEPTION '%', status.problem USING ERRCODE = 'object_not_in_prerequisite_state', HINT = status.hint;
    END IF;
    storage := quote_ident(status.storage_schema);

    EXECUTE format('GRANT USAGE ON SCHEMA awa, awa_ingest, %s TO %s', storage, grantee);
    FOREACH part IN ARRAY ARRAY[
        'status()', 'run_maintenance(text)', 'analyze_relation(regclass)', 'start_worker()', 'stop_worker()', 'reset_ingest_stats()',
        'lane_sequence_problems()', 'repair_lane_sequence(text, text)', 'provision_lane(text, smallint, smallint)',
        'sequence_position(regclass)', 'discard(bigint)', 'discard_queue(text)'
    ] LOOP
        CONTINUE WHEN to_regprocedure('awa_ingest.' || part) IS NULL;
        EXECUTE format('GRANT EXECUTE ON FUNCTION awa_ingest.%s TO %s', part, grantee);
    END LOOP;
    FOREACH part IN ARRAY ARRAY['workers', 'maintenance_runs', 'lanes', 'stalled_lanes', 'rings', 'ingest_stats'] LOOP
        relation := to_regclass('awa_ingest.' || part);
        CONTINUE WHEN relation IS NULL;
        EXECUTE format('GRANT SELECT ON %s TO %s', relation, grantee);
        -- A view's functions run with its reader's rights.
        FOR routine IN
            SELECT DISTINCT function.oid
              FROM pg_rewrite AS rule
              JOIN pg_depend AS depend ON depend.classid = 'pg_rewrite'::regclass AND depend.objid = rule.oid
              JOIN pg_proc AS function ON depend.refclassid = 'pg_proc'::regclass AND function.oid = depend.refobjid
             WHERE rule.ev_class = relation AND function.pronamespace = 'awa_ingest'::regnamespace
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', routine, grantee);
        END LOOP;
    END LOOP;
    IF to_regclass('awa_ingest.maintenance_records') IS NOT NULL THEN
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON awa_ingest.maintenance_records TO %s', grantee);
    END IF;
    IF status.mode = 'attached' THEN
        EXECUTE format('GRANT SELECT ON awa.storage_transition_state, awa.runtime_storage_backends, awa.schema_version TO %s', grantee);
    END IF;
    IF status.storage_schema = 'awa_ingest' THEN
        -- What discard and discard_queue touch: who may throw a whole slot away may throw away one job.
        EXECUTE format('GRANT SELECT, DELETE ON awa_ingest.ready_entries, awa_ingest.deferred_jobs, awa_ingest.job_unique_claims TO %s', grantee);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON awa_ingest.ready_segments TO %s', grantee);
        EXECUTE format('GRANT SELECT ON awa_ingest.queue_lanes, awa_ingest.queue_meta TO %s', grantee);
    END IF;
    IF status.engine = 'queue_storage' THEN
        PERFORM awa_ingest.grant_upkeep(status.storage_schema, role);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION awa_ingest.grant_operator(text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.grant_operator(text) IS
    'Grants a role what operating needs and nothing more, on the storage that is in use: maintenance, views, and the repair of lanes';

CREATE FUNCTION awa_ingest.grant_upkeep(storage_schema text, role text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    wanted record;
    relation regclass;
    next_value regprocedure := to_regprocedure(format('%I.sequence_next_value(text)', storage_schema));
BEGIN
    -- The embedded storage has the first few of them.
    FOR wanted IN SELECT * FROM (VALUES
        ('SELECT, INSERT, UPDATE, DELETE', 'queue_enqueue_heads'), ('SELECT, INSERT, UPDATE, DELETE', 'queue_claim_heads'),
        ('SELECT, UPDATE', 'queue_ring_state'), ('SELECT, UPDATE', 'queue_ring_slots'),
        ('SELECT, UPDATE', 'lease_ring_state'), ('SELECT, UPDATE', 'lease_ring_slots'),
        ('SELECT, UPDATE', 'claim_ring_state'), ('SELECT, UPDATE', 'claim_ring_slots'),
        ('SELECT, TRUNCATE', 'ready_entries'), ('SELECT, TRUNCATE', 'ready_segments'), ('SELECT, TRUNCATE', 'ready_tombstones'),
        ('SELECT, TRUNCATE', 'ready_claim_attempt_batches'), ('SELECT, INSERT, TRUNCATE', 'done_entries'),
        ('SELECT, TRUNCATE', 'receipt_completion_batches'), ('SELECT, TRUNCATE', 'receipt_completion_tombstones'),
        ('SELECT, INSERT, TRUNCATE', 'queue_terminal_count_deltas'), ('SELECT, TRUNCATE', 'leases'),
        ('SELECT, TRUNCATE', 'lease_claims'), ('SELECT, TRUNCATE', 'lease_claim_batches'),
        ('SELECT, TRUNCATE', 'lease_claim_closures'), ('SELECT, TRUNCATE', 'lease_claim_closure_batches'),
        ('SELECT', 'deferred_jobs'), ('SELECT', 'dlq_entries'),
        ('SELECT, INSERT, UPDATE, DELETE', 'queue_terminal_live_counts'), ('SELECT, INSERT, UPDATE', 'queue_terminal_rollups')
    ) AS wanted (privileges, name)
    LOOP
        relation := to_regclass(format('%I.%I', storage_schema, wanted.name));
        FOR relation IN
            SELECT relation WHERE relation IS NOT NULL
            UNION
            SELECT tree.relid FROM pg_partition_tree(relation) AS tree
        LOOP
            EXECUTE format('GRANT %s ON %s TO %I', wanted.privileges, relation, role);
        END LOOP;
    END LOOP;
    FOR relation IN
        SELECT class.oid FROM pg_class AS class
         WHERE class.relnamespace = to_regnamespace(quote_ident(storage_schema)) AND class.relkind = 'S'
           AND class.relname ~ '^queue_(enqueue|claim)_seq_[0-9a-f]{32}$'
    LOOP
        EXECUTE format('GRANT SELECT, USAGE, UPDATE ON SEQUENCE %s TO %I', relation, role);
    END LOOP;
    IF next_value IS NOT NULL THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', next_value, role);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION awa_ingest.grant_upkeep(text, text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.grant_upkeep(text, text) IS
    'The part of awa_ingest.grant_operator() that concerns the tables, partitions and sequences of a storage';
