CREATE FUNCTION awa_ingest.read_ingest_stats() RETURNS TABLE (
    queue text,
    jobs bigint,
    batches bigint,
    conflicts bigint,
    bytes bigint,
    lane_lock_waits bigint[],
    lane_lock_wait_time interval
)
AS 'MODULE_PATHNAME', 'awa_ingest_read_ingest_stats' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 100 SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.read_ingest_stats() IS 'What the view awa_ingest.ingest_stats shows';

CREATE VIEW awa_ingest.ingest_stats AS SELECT * FROM awa_ingest.read_ingest_stats();
COMMENT ON VIEW awa_ingest.ingest_stats IS
    'What committed transactions enqueued into this database since the server started, by queue; empty unless awa_ingest is in shared_preload_libraries';
COMMENT ON COLUMN awa_ingest.ingest_stats.queue IS 'Logical queue, its stripes together; NULL for all queues that found no room (512 queues, 64 kB of names)';
COMMENT ON COLUMN awa_ingest.ingest_stats.jobs IS 'Jobs written';
COMMENT ON COLUMN awa_ingest.ingest_stats.batches IS 'Calls, and statements of COPY and INSERT, that had jobs of this queue';
COMMENT ON COLUMN awa_ingest.ingest_stats.conflicts IS 'Jobs left out because their unique keys were taken';
COMMENT ON COLUMN awa_ingest.ingest_stats.bytes IS
    'Of the jobs written: kind, stored queue name, args, unique key, and metadata and tags unless both are empty, as stored, before compression';
COMMENT ON COLUMN awa_ingest.ingest_stats.lane_lock_waits IS
    'How often a call locked a lane after waiting for it up to 1 ms, 10 ms, 100 ms, 1 s, and longer';
COMMENT ON COLUMN awa_ingest.ingest_stats.lane_lock_wait_time IS 'Sum of these waits';

CREATE FUNCTION awa_ingest.reset_ingest_stats() RETURNS void
AS 'MODULE_PATHNAME', 'awa_ingest_reset_ingest_stats' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.reset_ingest_stats() IS
    'Empties awa_ingest.ingest_stats of this database, and makes room by forgetting databases that are dropped';

REVOKE ALL ON FUNCTION awa_ingest.read_ingest_stats() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.reset_ingest_stats() FROM PUBLIC;
REVOKE ALL ON awa_ingest.ingest_stats FROM PUBLIC;
