-- Shards of queue $1 under its own name, whether it has lanes of its own, and whether one of its first eight stripes has any: a
-- handful of index look-ups. A queue with neither is looked at more closely, which happens once.
SELECT COALESCE((SELECT meta.enqueue_shards FROM {shared}.queue_meta AS meta WHERE meta.queue = $1), 1::smallint),
       EXISTS (SELECT FROM {storage}.queue_lanes AS lane WHERE lane.queue = $1),
       EXISTS (SELECT FROM {storage}.queue_lanes AS lane
                WHERE lane.queue = ANY (ARRAY[$1 || '#0', $1 || '#1', $1 || '#2', $1 || '#3',
                                              $1 || '#4', $1 || '#5', $1 || '#6', $1 || '#7']))
