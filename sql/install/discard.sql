CREATE FUNCTION awa_ingest.discard(job_id bigint) RETURNS boolean
AS 'MODULE_PATHNAME', 'awa_ingest_discard' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.discard(bigint) IS
    'Removes a job that waits in the embedded storage, ready or deferred, and releases its unique key; returns whether there was one';

CREATE FUNCTION awa_ingest.discard_queue(queue text) RETURNS bigint
AS 'MODULE_PATHNAME', 'awa_ingest_discard_queue' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.discard_queue(text) IS
    'Removes all jobs that wait in a queue of the embedded storage, its stripes included, and releases their unique keys; returns how many';

REVOKE ALL ON FUNCTION awa_ingest.discard(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.discard_queue(text) FROM PUBLIC;
