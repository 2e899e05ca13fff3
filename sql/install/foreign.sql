CREATE FUNCTION awa_ingest.fdw_handler() RETURNS fdw_handler
AS 'MODULE_PATHNAME', 'awa_ingest_fdw_handler' LANGUAGE C STRICT SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.fdw_handler() IS 'Callbacks of the foreign data wrapper awa_ingest';

CREATE FUNCTION awa_ingest.fdw_validator(options text[], catalog oid) RETURNS void
AS 'MODULE_PATHNAME', 'awa_ingest_fdw_validator' LANGUAGE C STRICT SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.fdw_validator(text[], oid) IS 'Checks the options of foreign tables on server awa_ingest';

CREATE FOREIGN DATA WRAPPER awa_ingest HANDLER awa_ingest.fdw_handler VALIDATOR awa_ingest.fdw_validator;
COMMENT ON FOREIGN DATA WRAPPER awa_ingest IS 'Takes jobs in by COPY FROM and INSERT';
CREATE SERVER awa_ingest FOREIGN DATA WRAPPER awa_ingest;
COMMENT ON SERVER awa_ingest IS
    'Server of foreign tables that take jobs; table options kind, queue, priority, max_attempts, uniqueness, tags, on_conflict and batch_size';

-- The first twelve columns are those of awa's own COPY, in its order.
CREATE FOREIGN TABLE awa.ingest (
    kind text,
    queue text,
    args jsonb,
    state text,
    priority smallint,
    max_attempts smallint,
    run_at timestamptz,
    metadata jsonb,
    tags text[],
    unique_key bytea,
    unique_states text,
    ordering_key bytea,
    uniqueness jsonb,
    job_id bigint
) SERVER awa_ingest;
COMMENT ON FOREIGN TABLE awa.ingest IS
    'Write-only: COPY awa.ingest FROM and INSERT INTO awa.ingest enqueue jobs; a taken unique key raises 23505 (idx_awa_jobs_unique)';
COMMENT ON COLUMN awa.ingest.kind IS 'Required, 1 to 200 characters';
COMMENT ON COLUMN awa.ingest.queue IS 'At most 200 characters; default default';
COMMENT ON COLUMN awa.ingest.args IS 'Any JSON; default {}';
COMMENT ON COLUMN awa.ingest.state IS 'available, scheduled or retryable; default scheduled with a run_at, else available';
COMMENT ON COLUMN awa.ingest.priority IS '1 to 4, 1 first; default 2';
COMMENT ON COLUMN awa.ingest.max_attempts IS '1 to 1000; default 25';
COMMENT ON COLUMN awa.ingest.run_at IS 'When the job is due; default now';
COMMENT ON COLUMN awa.ingest.metadata IS 'A JSON object; default {}';
COMMENT ON COLUMN awa.ingest.tags IS 'At most 20';
COMMENT ON COLUMN awa.ingest.unique_key IS 'Key computed by the caller, 1 to 1024 bytes; excludes uniqueness';
COMMENT ON COLUMN awa.ingest.unique_states IS 'States that hold unique_key, as eight characters 0 or 1; without them it claims nothing';
COMMENT ON COLUMN awa.ingest.ordering_key IS 'Jobs with the same bytes share a shard of their queue, and so keep their order';
COMMENT ON COLUMN awa.ingest.uniqueness IS 'true, or an object with by_queue, by_args, by_period and states: has the key computed';
COMMENT ON COLUMN awa.ingest.job_id IS 'The id, for RETURNING; writing it is an error';

CREATE FOREIGN TABLE awa.ingest_skip_conflicts (
    kind text,
    queue text,
    args jsonb,
    state text,
    priority smallint,
    max_attempts smallint,
    run_at timestamptz,
    metadata jsonb,
    tags text[],
    unique_key bytea,
    unique_states text,
    ordering_key bytea,
    uniqueness jsonb,
    job_id bigint
) SERVER awa_ingest OPTIONS (on_conflict 'skip');
COMMENT ON FOREIGN TABLE awa.ingest_skip_conflicts IS
    'Like awa.ingest, but leaves out jobs whose unique keys are taken; awa.last_ingest_summary() counts them, awa.last_ingest() names them';

CREATE FUNCTION awa.last_ingest() RETURNS TABLE (ord bigint, job_id bigint, conflicts_with bigint)
AS 'MODULE_PATHNAME', 'awa_ingest_last_ingest' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.last_ingest() IS
    'One row for each job of this session''s last COPY or INSERT into a foreign table of server awa_ingest, in input order';

CREATE FUNCTION awa.last_ingest_summary() RETURNS TABLE (
    rows bigint,
    enqueued bigint,
    skipped bigint,
    deferred bigint,
    lanes integer,
    job_ids int8multirange,
    elapsed interval,
    writing interval,
    lane_lock_wait interval,
    lane_hold interval
) AS 'MODULE_PATHNAME', 'awa_ingest_last_ingest_summary' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.last_ingest_summary() IS
    'One row about this session''s last COPY or INSERT into a foreign table of server awa_ingest: counts, ids as ranges, lanes, times';

REVOKE ALL ON FUNCTION awa_ingest.fdw_handler() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.fdw_validator(text[], oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.last_ingest() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.last_ingest_summary() FROM PUBLIC;

-- The validator sees options alone. Rows are checked as well: the trigger does not fire for ALTER TABLE, nor where event triggers are off.
CREATE FUNCTION awa_ingest.check_foreign_tables() RETURNS event_trigger
AS 'MODULE_PATHNAME', 'awa_ingest_check_foreign_tables' LANGUAGE C SET search_path = pg_catalog, pg_temp;
REVOKE ALL ON FUNCTION awa_ingest.check_foreign_tables() FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.check_foreign_tables() IS 'Checks the columns of foreign tables on server awa_ingest when they are created or altered';

CREATE EVENT TRIGGER awa_ingest_check_foreign_tables ON ddl_command_end
    WHEN TAG IN ('CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE')
    EXECUTE FUNCTION awa_ingest.check_foreign_tables();
COMMENT ON EVENT TRIGGER awa_ingest_check_foreign_tables IS 'Refuses foreign tables on server awa_ingest with columns that no job has';
