-- The counts of the rows carried ($1 as there) go with them: those of this slot are dropped. 256 buckets, by the job's id.
INSERT INTO {storage}.queue_terminal_count_deltas (
    ready_slot, ready_generation, queue, priority, enqueue_shard, counter_bucket, terminal_delta)
SELECT current.slot, current.generation, done.queue, done.priority, done.enqueue_shard,
       ((done.job_id % 256 + 256) % 256)::smallint, count(*)
  FROM {storage}.queue_ring_state AS state
  JOIN {storage}.queue_ring_slots AS current ON current.slot = state.current_slot
 CROSS JOIN {storage}.done_entries{suffix} AS done
 WHERE state.singleton AND done.state = 'failed' AND done.finalized_at >= $1
 GROUP BY 1, 2, 3, 4, 5, 6
 ORDER BY 3, 4, 5, 6
