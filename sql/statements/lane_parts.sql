-- What there is of lane ($1 queue, $2 priority, $3 shard) in schema $4: whether it has a head, and its two sequences.
SELECT EXISTS (SELECT FROM {storage}.queue_enqueue_heads AS head
                WHERE head.queue = $1 AND head.priority = $2 AND head.enqueue_shard = $3)
           OR EXISTS (SELECT FROM {storage}.queue_claim_heads AS head
                       WHERE head.queue = $1 AND head.priority = $2 AND head.enqueue_shard = $3),
       to_regclass(format('%I.queue_enqueue_seq_%s', $4, hash.value))::oid::bigint,
       to_regclass(format('%I.queue_claim_seq_%s', $4, hash.value))::oid::bigint
  FROM (SELECT md5(format('%s:%s:%s', $1, $2, $3)) AS value) AS hash
