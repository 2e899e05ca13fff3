INSERT INTO {storage}.queue_lanes (queue, priority) VALUES ($1, $2) ON CONFLICT (queue, priority) DO NOTHING
