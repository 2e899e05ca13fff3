-- Carries the failed rows that finished at $1 or later into the current slot, so that they can still be retried. What such a row takes
-- from its ready row goes with that, and is written into the row. A current slot without a row is an error: NULL is no generation.
-- Returns how many there are, and how many were carried.
WITH current AS (
    SELECT state.current_slot AS slot, slot.generation
      FROM {storage}.queue_ring_state AS state
      LEFT JOIN {storage}.queue_ring_slots AS slot ON slot.slot = state.current_slot
     WHERE state.singleton
), carried AS (
    INSERT INTO {storage}.done_entries (
        ready_slot, ready_generation, job_id, kind, queue, args, state, priority, attempt, run_lease, max_attempts, lane_seq,
        enqueue_shard, run_at, attempted_at, finalized_at, created_at, unique_key, unique_states, payload)
    SELECT current.slot, current.generation, done.job_id, done.kind, done.queue, COALESCE(done.args, ready.args, '{}'), done.state,
           done.priority, done.attempt, done.run_lease, COALESCE(done.max_attempts, ready.max_attempts, 25::smallint), done.lane_seq,
           done.enqueue_shard, COALESCE(done.run_at, ready.run_at, done.finalized_at), COALESCE(done.attempted_at, ready.attempted_at),
           done.finalized_at, COALESCE(done.created_at, ready.created_at, done.finalized_at), COALESCE(done.unique_key, ready.unique_key),
           COALESCE(done.unique_states, ready.unique_states), COALESCE(done.payload, ready.payload, '{}')
      FROM current
     CROSS JOIN {storage}.done_entries{suffix} AS done
      LEFT JOIN {storage}.ready_entries{suffix} AS ready
        USING (ready_slot, ready_generation, queue, priority, enqueue_shard, lane_seq)
     WHERE done.state = 'failed' AND done.finalized_at >= $1
    RETURNING 1
)
SELECT (SELECT count(*) FROM {storage}.done_entries{suffix} AS done WHERE done.state = 'failed' AND done.finalized_at >= $1),
       (SELECT count(*) FROM carried)
