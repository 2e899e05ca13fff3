-- Functions that return rows of awa.jobs: they can only be made where awa is, and go with the extension or with awa, whichever goes first.
CREATE OR REPLACE FUNCTION awa_ingest.insert_jobs_compat_batch(
    kind text[],
    queue text[] DEFAULT NULL,
    args jsonb[] DEFAULT NULL,
    state text[] DEFAULT NULL,
    priority smallint[] DEFAULT NULL,
    max_attempts smallint[] DEFAULT NULL,
    run_at timestamptz[] DEFAULT NULL,
    metadata jsonb[] DEFAULT NULL,
    tags jsonb[] DEFAULT NULL,
    unique_key bytea[] DEFAULT NULL,
    unique_states text[] DEFAULT NULL,
    ordering_key bytea[] DEFAULT NULL,
    skip_conflicts boolean DEFAULT false
) RETURNS SETOF awa.jobs
AS '$libdir/awa_ingest', 'awa_ingest_insert_jobs_compat_batch' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.insert_jobs_compat_batch(text[], text[], jsonb[], text[], smallint[], smallint[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], boolean) IS
    'awa.insert_job_compat for many jobs, from parallel arrays as awa.enqueue_columns takes them; returns the jobs enqueued, in input order';
REVOKE ALL ON FUNCTION awa_ingest.insert_jobs_compat_batch(text[], text[], jsonb[], text[], smallint[], smallint[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], boolean) FROM PUBLIC;
ALTER FUNCTION awa_ingest.insert_jobs_compat_batch(text[], text[], jsonb[], text[], smallint[], smallint[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], boolean) DEPENDS ON EXTENSION awa_ingest;

CREATE OR REPLACE FUNCTION awa_ingest.insert_many_skip_unique_conflicts(jobs jsonb) RETURNS SETOF awa.jobs
AS '$libdir/awa_ingest', 'awa_ingest_insert_many_skip_unique_conflicts' LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.insert_many_skip_unique_conflicts(jsonb) IS
    'Enqueues a JSON array of job objects and leaves out those whose unique key is taken; returns the jobs enqueued, in input order';
REVOKE ALL ON FUNCTION awa_ingest.insert_many_skip_unique_conflicts(jsonb) FROM PUBLIC;
ALTER FUNCTION awa_ingest.insert_many_skip_unique_conflicts(jsonb) DEPENDS ON EXTENSION awa_ingest;

CREATE OR REPLACE FUNCTION awa_ingest.last_ingest_jobs() RETURNS SETOF awa.jobs
AS '$libdir/awa_ingest', 'awa_ingest_last_ingest_jobs' LANGUAGE C STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.last_ingest_jobs() IS
    'The jobs that this session''s last COPY or INSERT into a foreign table enqueued, in input order';
REVOKE ALL ON FUNCTION awa_ingest.last_ingest_jobs() FROM PUBLIC;
ALTER FUNCTION awa_ingest.last_ingest_jobs() DEPENDS ON EXTENSION awa_ingest;
