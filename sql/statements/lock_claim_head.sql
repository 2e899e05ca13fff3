-- Workers that claim go past a lane whose claim head is locked, and those that move its cursor wait.
SELECT FROM {storage}.queue_claim_heads AS head
 WHERE head.queue = $1 AND head.priority = $2 AND head.enqueue_shard = $3
   FOR UPDATE
