-- Names of the enqueue sequences of the lanes ($1 queues, $2 priorities, $3 shards), in that order; NULL where a lane is missing.
SELECT (SELECT head.seq_name
          FROM {storage}.queue_enqueue_heads AS head
         WHERE head.queue = lane.queue AND head.priority = lane.priority AND head.enqueue_shard = lane.shard)
  FROM unnest($1::text[], $2::smallint[], $3::smallint[]) WITH ORDINALITY AS lane (queue, priority, shard, ord)
 ORDER BY lane.ord
