-- SELECT on a sequence keeps a lock until the transaction ends, and thousands of them fill the server's lock table.
CREATE FUNCTION awa_ingest.sequence_position(sequence regclass) RETURNS bigint
AS 'MODULE_PATHNAME', 'awa_ingest_sequence_position' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.sequence_position(regclass) IS
    'Next value of a sequence, read without a lock that stays; NULL for one that the caller may not read, and for anything else';

CREATE FUNCTION awa_ingest.lane_states()
RETURNS TABLE (queue text, priority smallint, shard smallint, waiting bigint, oldest timestamptz, last_enqueued timestamptz)
AS 'MODULE_PATHNAME', 'awa_ingest_lane_states' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.lane_states() IS 'What awa_ingest.lanes shows, with the caller''s rights';

CREATE VIEW awa_ingest.lanes AS
SELECT queue, priority, shard, waiting, oldest, last_enqueued FROM awa_ingest.lane_states();
COMMENT ON VIEW awa_ingest.lanes IS 'Lanes of the storage in use: jobs that wait there to be claimed, and since when';
COMMENT ON COLUMN awa_ingest.lanes.queue IS 'Stored name: each stripe of a queue has lanes of its own';
COMMENT ON COLUMN awa_ingest.lanes.waiting IS
    'Ready jobs that no worker has claimed; NULL where the claim sequence is missing or the caller may not read it';
COMMENT ON COLUMN awa_ingest.lanes.oldest IS 'When the one of them that waits longest was due: its run_at, by default the time of its enqueue';
COMMENT ON COLUMN awa_ingest.lanes.last_enqueued IS 'When the newest jobs that are still in the ring, worked or not, became ready';

CREATE FUNCTION awa_ingest.stalled_lane_states()
RETURNS TABLE (queue text, priority smallint, shard smallint, claim_position bigint, next_position bigint, oldest timestamptz)
AS 'MODULE_PATHNAME', 'awa_ingest_stalled_lane_states' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.stalled_lane_states() IS 'What awa_ingest.stalled_lanes shows, with the caller''s rights';

CREATE VIEW awa_ingest.stalled_lanes AS
SELECT queue, priority, shard, claim_position, next_position, oldest FROM awa_ingest.stalled_lane_states();
COMMENT ON VIEW awa_ingest.stalled_lanes IS
    'Lanes that awa''s workers never leave by themselves: the claim cursor is before a gap, and the jobs behind the gap are claimed or gone';
COMMENT ON COLUMN awa_ingest.stalled_lanes.claim_position IS 'Where the claim cursor stands';
COMMENT ON COLUMN awa_ingest.stalled_lanes.next_position IS 'Where run_maintenance(''lanes'') moves it: the first job that nobody has claimed, or the end of the lane';
COMMENT ON COLUMN awa_ingest.stalled_lanes.oldest IS 'When that job was due; NULL where none waits';

CREATE FUNCTION awa_ingest.lane_sequence_problems()
RETURNS TABLE (schema_name text, sequence_name text, problem text, detail text, able_roles text[], statements text[])
AS 'MODULE_PATHNAME', 'awa_ingest_lane_sequence_problems' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.lane_sequence_problems() IS
    'Lane sequences that are missing, have another owner than their head table, or lack its privileges, with the statements that repair each and who can run them';

CREATE FUNCTION awa_ingest.repair_lane_sequence(schema_name text, sequence_name text) RETURNS text
AS 'MODULE_PATHNAME', 'awa_ingest_repair_lane_sequence' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.repair_lane_sequence(text, text) IS
    'Runs the statements that awa_ingest.lane_sequence_problems() lists for a sequence, with the caller''s rights: repaired, busy (in use for 300 ms; nothing changed) or nothing_to_do';

REVOKE ALL ON FUNCTION awa_ingest.sequence_position(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.lane_states() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.stalled_lane_states() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.lane_sequence_problems() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.repair_lane_sequence(text, text) FROM PUBLIC;
