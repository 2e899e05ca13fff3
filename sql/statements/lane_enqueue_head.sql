INSERT INTO {storage}.queue_enqueue_heads (queue, priority, enqueue_shard) VALUES ($1, $2, $3)
    ON CONFLICT (queue, priority, enqueue_shard) DO NOTHING
