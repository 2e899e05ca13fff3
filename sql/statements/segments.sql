-- Without its segment a ready row is invisible to workers. $3 holds each lane's first position; $4 is the call's clock.
INSERT INTO {storage}.ready_segments{suffix} (
    ready_slot, ready_generation, queue, priority, enqueue_shard, first_lane_seq, next_lane_seq, first_run_at)
SELECT $1, $2, segment.queue, segment.priority, segment.shard,
       ($3::bigint[])[segment.lane] + segment.first, ($3::bigint[])[segment.lane] + segment.next, COALESCE(segment.run_at, $4)
  FROM awa_ingest_segments AS segment
