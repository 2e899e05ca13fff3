-- Stored queues behind queue $1, in stripe order, with their shards. $2 is the number of stripes, or NULL to count them.
-- Probing the first eight names first keeps the usual case, a queue without stripes, at a handful of index look-ups.
WITH stripes AS (
    SELECT COALESCE($2, CASE
        WHEN EXISTS (SELECT FROM {storage}.queue_lanes AS lane
                      WHERE lane.queue = ANY (ARRAY[$1 || '#0', $1 || '#1', $1 || '#2', $1 || '#3',
                                                    $1 || '#4', $1 || '#5', $1 || '#6', $1 || '#7']))
        THEN (SELECT max(n) + 1 FROM generate_series(0, 63) AS n
               WHERE EXISTS (SELECT FROM {storage}.queue_lanes AS lane WHERE lane.queue = $1 || '#' || n))
        ELSE 0
    END) AS total
)
SELECT target.queue, COALESCE(meta.enqueue_shards, 1::smallint)
  FROM (SELECT $1 AS queue, 0 AS stripe FROM stripes WHERE total = 0
        UNION ALL
        SELECT $1 || '#' || n, n FROM stripes, generate_series(0, total - 1) AS n) AS target
  LEFT JOIN {shared}.queue_meta AS meta ON meta.queue = target.queue
 ORDER BY target.stripe
