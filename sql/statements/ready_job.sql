-- The row of one ready job, where it cannot be written directly.
INSERT INTO {storage}.ready_entries{suffix} (
    ready_slot, ready_generation, job_id, kind, queue, args, priority, attempt, run_lease, max_attempts, lane_seq, enqueue_shard,
    run_at, attempted_at, created_at, unique_key, unique_states, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, $9, $10, $11, NULL, $12, $13, $14, $15)
