-- The end of each lane ($1 queues, $2 priorities, $3 shards): the position behind the last one that has a segment in the ring. NULL where
-- none has.
SELECT lane.number, (SELECT max(segment.next_lane_seq)
                       FROM {storage}.ready_segments AS segment
                      WHERE segment.queue = lane.queue AND segment.priority = lane.priority AND segment.enqueue_shard = lane.shard)
  FROM unnest($1, $2, $3) WITH ORDINALITY AS lane (queue, priority, shard, number)
 ORDER BY lane.number
