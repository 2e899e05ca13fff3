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
    compat text;
BEGIN
    SELECT quote_ident(rolname) INTO grantee FROM pg_roles WHERE rolname = role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role "%" does not exist', role USING ERRCODE = 'undefined_object';
    END IF;
    SELECT * INTO status FROM awa_ingest.status();
    IF NOT status.ready THEN
        RAISE EXCEPTION '%', status.problem USING ERRCODE = 'object_not_in_prerequisite_state', HINT = status.hint;
    END IF;
    storage := quote_ident(status.storage_schema);
    shared := CASE status.mode WHEN 'attached' THEN 'awa' ELSE 'awa_ingest' END;

    EXECUTE format('GRANT USAGE ON SCHEMA awa, awa_ingest, %s TO %s', storage, grantee);
    EXECUTE format('GRANT EXECUTE ON FUNCTION
        awa.enqueue(text, jsonb, text, smallint, smallint, timestamptz, jsonb, text[], jsonb, text),
        awa.enqueue_batch(jsonb, text),
        awa.enqueue_columns(text[], jsonb[], text[], smallint[], smallint[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], text),
        awa.enqueue_csv(bytea, text, boolean, text, text, text[]),
        awa.enqueue_csv(text, text, boolean, text, text, text[]),
        awa.last_ingest(),
        awa.last_ingest_summary(),
        awa_ingest.status(),
        awa_ingest.provision_lane(text, smallint, smallint) TO %s', grantee);
    -- SELECT is what RETURNING asks for; nothing can be read.
    EXECUTE format('GRANT INSERT, SELECT ON awa.ingest, awa.ingest_skip_conflicts TO %s', grantee);
    -- Made by attach(), where it was called.
    FOREACH compat IN ARRAY ARRAY['insert_jobs_compat_batch', 'insert_many_skip_unique_conflicts', 'last_ingest_jobs'] LOOP
        IF to_regproc('awa_ingest.' || compat) IS NOT NULL THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION awa_ingest.%I TO %s', compat, grantee);
        END IF;
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
    EXECUTE format('GRANT USAGE ON SEQUENCE %1$s.job_id_seq TO %2$s', storage, grantee);

    FOR relation IN
        SELECT tree.relid FROM pg_partition_tree(format('%s.ready_entries', storage)::regclass) AS tree
        UNION ALL
        SELECT tree.relid FROM pg_partition_tree(format('%s.ready_segments', storage)::regclass) AS tree
    LOOP
        EXECUTE format('GRANT INSERT ON %s TO %s', relation, grantee);
    END LOOP;
    FOR relation IN EXECUTE format(
        'SELECT to_regclass(format(''%%I.%%I'', $1, head.seq_name)) FROM %s.queue_enqueue_heads AS head WHERE head.seq_name IS NOT NULL',
        storage) USING status.storage_schema
    LOOP
        CONTINUE WHEN relation IS NULL;
        EXECUTE format('GRANT SELECT, USAGE, UPDATE ON SEQUENCE %s TO %s', relation, grantee);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION awa_ingest.grant_producer(text) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.grant_producer(text) IS
    'Grants a role what enqueueing needs and nothing more, on the storage that is in use';
