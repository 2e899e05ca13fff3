-- The stripes of queue $1 in order, with their shards. $2 is their number, or NULL to go by the lanes that exist.
SELECT stripe.queue, COALESCE(meta.enqueue_shards, 1::smallint)
  FROM generate_series(0, COALESCE($2, (SELECT max(n) + 1 FROM generate_series(0, 63) AS n
                                         WHERE EXISTS (SELECT FROM {storage}.queue_lanes AS lane WHERE lane.queue = $1 || '#' || n))) - 1)
       AS number
 CROSS JOIN LATERAL (SELECT $1 || '#' || number AS queue) AS stripe
  LEFT JOIN {shared}.queue_meta AS meta ON meta.queue = stripe.queue
 ORDER BY number
