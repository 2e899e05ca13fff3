INSERT INTO {storage}.queue_claim_heads (queue, priority, enqueue_shard) VALUES ($1, $2, $3)
    ON CONFLICT (queue, priority, enqueue_shard) DO NOTHING
