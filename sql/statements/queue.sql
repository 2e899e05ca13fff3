-- Shards of queue $1 under its own name, and whether it has stripes: the first eight are probed, which is a handful of index look-ups.
SELECT COALESCE((SELECT meta.enqueue_shards FROM {shared}.queue_meta AS meta WHERE meta.queue = $1), 1::smallint),
       EXISTS (SELECT FROM {storage}.queue_lanes AS lane
                WHERE lane.queue = ANY (ARRAY[$1 || '#0', $1 || '#1', $1 || '#2', $1 || '#3',
                                              $1 || '#4', $1 || '#5', $1 || '#6', $1 || '#7']))
