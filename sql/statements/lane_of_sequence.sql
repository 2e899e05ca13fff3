-- Whether the sequence named $1 is that of a lane.
SELECT EXISTS (
    SELECT FROM {storage}.queue_enqueue_heads AS head
     WHERE format('queue_enqueue_seq_%s', md5(format('%s:%s:%s', head.queue, head.priority, head.enqueue_shard))) = $1
    UNION ALL
    SELECT FROM {storage}.queue_claim_heads AS head
     WHERE format('queue_claim_seq_%s', md5(format('%s:%s:%s', head.queue, head.priority, head.enqueue_shard))) = $1)
