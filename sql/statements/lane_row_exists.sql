-- Whether the queue and priority have a row, which all shards share.
SELECT EXISTS (SELECT FROM {storage}.queue_lanes AS lane WHERE lane.queue = $1 AND lane.priority = $2)
