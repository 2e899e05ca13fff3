-- Whether the lane has both heads with their sequences.
SELECT EXISTS (
    SELECT FROM {storage}.queue_enqueue_heads AS enqueue
      JOIN {storage}.queue_claim_heads AS claim USING (queue, priority, enqueue_shard)
     WHERE enqueue.queue = $1 AND enqueue.priority = $2 AND enqueue.enqueue_shard = $3
       AND to_regclass(format('%I.%I', $4, enqueue.seq_name)) IS NOT NULL
       AND to_regclass(format('%I.%I', $4, claim.seq_name)) IS NOT NULL)
