-- A segment for each job that was left: its neighbours may be gone.
INSERT INTO awa_ingest.ready_segments (
    ready_slot, ready_generation, queue, priority, enqueue_shard, first_lane_seq, next_lane_seq, first_run_at)
SELECT ready.ready_slot, ready.ready_generation, ready.queue, ready.priority, ready.enqueue_shard, ready.lane_seq, ready.lane_seq + 1,
       ready.run_at
  FROM awa_ingest.ready_entries AS ready
