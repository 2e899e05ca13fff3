-- The sequence that hands out the positions of lane ($1 queue, $2 priority, $3 shard).
SELECT head.seq_name
  FROM {storage}.queue_enqueue_heads AS head
 WHERE head.queue = $1 AND head.priority = $2 AND head.enqueue_shard = $3
