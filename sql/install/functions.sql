-- Two functions, so that every call finds exactly one. Untyped literals and parameters are those of the first, because text is preferred
-- to varchar for kind; what the first cannot take (json, text, bigint) is taken by the second.
CREATE FUNCTION awa.enqueue(
    kind text,
    args jsonb DEFAULT '{}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 2,
    max_attempts integer DEFAULT 25,
    run_at timestamptz DEFAULT NULL,
    metadata jsonb DEFAULT '{}',
    tags text[] DEFAULT '{}',
    uniqueness anycompatible DEFAULT NULL::jsonb,
    ordering_key text DEFAULT NULL,
    on_conflict text DEFAULT 'error'
) RETURNS bigint
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue(text, jsonb, text, integer, integer, timestamptz, jsonb, text[], anycompatible, text, text) IS
    'Enqueues one job and returns its id; a taken unique key raises 23505 (idx_awa_jobs_unique), or with on_conflict skip returns NULL';

CREATE FUNCTION awa.enqueue(
    kind varchar,
    args awa_ingest.json_text DEFAULT '{}',
    queue text DEFAULT 'default',
    priority bigint DEFAULT 2,
    max_attempts bigint DEFAULT 25,
    run_at timestamptz DEFAULT NULL,
    metadata awa_ingest.json_text DEFAULT '{}',
    tags text[] DEFAULT '{}',
    uniqueness anycompatible DEFAULT NULL::jsonb,
    ordering_key text DEFAULT NULL,
    on_conflict text DEFAULT 'error'
) RETURNS bigint
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue_text' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue(
    varchar, awa_ingest.json_text, text, bigint, bigint, timestamptz, awa_ingest.json_text, text[], anycompatible, text, text) IS
    'The same for json, text and varchar as args and metadata, and for bigint';

-- Untyped literals and parameters are text here: it is read in the function, where too large a batch gets a hint.
CREATE FUNCTION awa.enqueue_batch(jobs text, on_conflict text DEFAULT 'error')
RETURNS TABLE (ord bigint, job_id bigint, conflicts_with bigint)
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue_batch_text' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue_batch(text, text) IS
    'Enqueues a JSON array of job objects, one result row a job in input order; on_conflict is error or skip';

CREATE FUNCTION awa.enqueue_batch(jobs json, on_conflict text DEFAULT 'error')
RETURNS TABLE (ord bigint, job_id bigint, conflicts_with bigint)
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue_batch_text' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue_batch(json, text) IS
    'Enqueues a JSON array of job objects, one result row a job in input order; on_conflict is error or skip';

CREATE FUNCTION awa.enqueue_batch(jobs jsonb, on_conflict text DEFAULT 'error')
RETURNS TABLE (ord bigint, job_id bigint, conflicts_with bigint)
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue_batch' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue_batch(jsonb, text) IS
    'Enqueues a JSON array of job objects, one result row a job in input order; on_conflict is error or skip';

-- args is jsonb[], json[] or text[]; an untyped array is text[]. PostgreSQL has no overloads that an untyped array could tell apart.
CREATE FUNCTION awa.enqueue_columns(
    kind text[],
    args anycompatiblearray DEFAULT NULL::jsonb[],
    queue text[] DEFAULT NULL,
    priority integer[] DEFAULT NULL,
    max_attempts integer[] DEFAULT NULL,
    run_at timestamptz[] DEFAULT NULL,
    metadata jsonb[] DEFAULT NULL,
    tags jsonb[] DEFAULT NULL,
    unique_key bytea[] DEFAULT NULL,
    unique_states text[] DEFAULT NULL,
    ordering_key bytea[] DEFAULT NULL,
    on_conflict text DEFAULT 'error'
) RETURNS TABLE (ord bigint, job_id bigint, conflicts_with bigint)
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue_columns' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue_columns(
    text[], anycompatiblearray, text[], integer[], integer[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], text) IS
    'Enqueues jobs from parallel arrays; an array is NULL, has one element for all jobs, or one element a job';

CREATE FUNCTION awa.enqueue_csv(
    csv bytea,
    on_conflict text DEFAULT 'error',
    header boolean DEFAULT true,
    null_string text DEFAULT '__AWA_NULL__',
    delimiter text DEFAULT ',',
    columns text[] DEFAULT NULL
) RETURNS TABLE (ord bigint, job_id bigint, conflicts_with bigint)
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue_csv' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue_csv(bytea, text, boolean, text, text, text[]) IS
    'Enqueues jobs from CSV in UTF-8; the columns are named by its header line, by the argument columns, or are those of awa''s COPY';

CREATE FUNCTION awa.enqueue_csv(
    csv text,
    on_conflict text DEFAULT 'error',
    header boolean DEFAULT true,
    null_string text DEFAULT '__AWA_NULL__',
    delimiter text DEFAULT ',',
    columns text[] DEFAULT NULL
) RETURNS TABLE (ord bigint, job_id bigint, conflicts_with bigint)
AS 'MODULE_PATHNAME', 'awa_ingest_enqueue_csv' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa.enqueue_csv(text, text, boolean, text, text, text[]) IS
    'Enqueues jobs from CSV; the columns are named by its header line, by the argument columns, or are those of awa''s COPY';

CREATE FUNCTION awa_ingest.status(
    OUT extension_version text,
    OUT storage text,
    OUT storage_schema text,
    OUT engine text,
    OUT awa_schema_version integer,
    OUT ready boolean,
    OUT problem text,
    OUT hint text,
    OUT insert_job_compat text,
    OUT insert_job_compat_problem text
) AS 'MODULE_PATHNAME', 'awa_ingest_status' LANGUAGE C STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.status() IS
    'Where jobs go now: the storage of awa or the extension''s own, its schema, what keeps jobs from being taken, and whether awa''s function is replaced';

-- Runs as the storage schema's owner inside: the caller needs no right to create anything.
CREATE FUNCTION awa_ingest.provision_lane(queue text, priority smallint, shard smallint) RETURNS void
AS 'MODULE_PATHNAME', 'awa_ingest_provision_lane' LANGUAGE C VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.provision_lane(text, smallint, smallint) IS
    'Creates a lane (head rows, sequences and their privileges) where it is missing or incomplete; shard is 0 to 63';

REVOKE ALL ON FUNCTION awa.enqueue(text, jsonb, text, integer, integer, timestamptz, jsonb, text[], anycompatible, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.enqueue(
    varchar, awa_ingest.json_text, text, bigint, bigint, timestamptz, awa_ingest.json_text, text[], anycompatible, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.enqueue_batch(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.enqueue_batch(json, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.enqueue_batch(jsonb, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.enqueue_columns(
    text[], anycompatiblearray, text[], integer[], integer[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.enqueue_csv(bytea, text, boolean, text, text, text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.enqueue_csv(text, text, boolean, text, text, text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.status() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.provision_lane(text, smallint, smallint) FROM PUBLIC;
