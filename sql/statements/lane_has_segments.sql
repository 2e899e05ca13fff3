SELECT EXISTS (SELECT FROM {storage}.ready_segments AS segment
                WHERE segment.queue = $1 AND segment.priority = $2 AND segment.enqueue_shard = $3)
