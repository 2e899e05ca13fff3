-- Adds the deltas to the live counts.
MERGE INTO {storage}.queue_terminal_live_counts AS live
USING (SELECT ready_slot, queue, priority, enqueue_shard, counter_bucket, sum(terminal_delta)::bigint AS delta
         FROM {storage}.queue_terminal_count_deltas{suffix}
        GROUP BY ready_slot, queue, priority, enqueue_shard, counter_bucket) AS folded
   ON live.ready_slot = folded.ready_slot AND live.queue = folded.queue AND live.priority = folded.priority
  AND live.enqueue_shard = folded.enqueue_shard AND live.counter_bucket = folded.counter_bucket
 WHEN MATCHED AND folded.delta <> 0 THEN
      UPDATE SET live_terminal_count = GREATEST(0, live.live_terminal_count + folded.delta)
 WHEN NOT MATCHED AND folded.delta > 0 THEN
      INSERT (ready_slot, queue, priority, enqueue_shard, counter_bucket, live_terminal_count)
      VALUES (folded.ready_slot, folded.queue, folded.priority, folded.enqueue_shard, folded.counter_bucket, folded.delta)
