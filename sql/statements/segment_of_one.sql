-- The segment of one ready job, where it cannot be written directly.
INSERT INTO {storage}.ready_segments{suffix} (
    ready_slot, ready_generation, queue, priority, enqueue_shard, first_lane_seq, next_lane_seq, first_run_at)
VALUES ($1, $2, $3, $4, $5, $6, $6 + 1, $7)
