-- In place of awa's function: the same name, arguments, defaults and result. CREATE OR REPLACE keeps its oid, owner, privileges and comment.
-- No setting of search_path: it would cost as much as the rest of a call, and the function pins its own wherever it runs SQL.
CREATE OR REPLACE FUNCTION awa.insert_job_compat(
    p_kind text,
    p_queue text DEFAULT 'default',
    p_args jsonb DEFAULT '{}',
    p_state awa.job_state DEFAULT 'available',
    p_priority smallint DEFAULT 2,
    p_max_attempts smallint DEFAULT 25,
    p_run_at timestamptz DEFAULT NULL,
    p_metadata jsonb DEFAULT '{}',
    p_tags text[] DEFAULT ARRAY[]::text[],
    p_unique_key bytea DEFAULT NULL,
    p_unique_states bit DEFAULT NULL,
    p_ordering_key bytea DEFAULT NULL
) RETURNS awa.jobs
AS '$libdir/awa_ingest', 'awa_ingest_insert_job_compat' LANGUAGE C VOLATILE PARALLEL UNSAFE;
