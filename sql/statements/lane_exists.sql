-- Whether the lane has its row and both heads with their sequences; a head without a name has none.
SELECT EXISTS (
    SELECT FROM {storage}.queue_enqueue_heads AS enqueue
      JOIN {storage}.queue_claim_heads AS claim USING (queue, priority, enqueue_shard)
      JOIN {storage}.queue_lanes AS lane USING (queue, priority)
     WHERE enqueue.queue = $1 AND enqueue.priority = $2 AND enqueue.enqueue_shard = $3
       AND to_regclass(quote_ident($4) || '.' || quote_ident(enqueue.seq_name)) IS NOT NULL
       AND to_regclass(quote_ident($4) || '.' || quote_ident(claim.seq_name)) IS NOT NULL)
