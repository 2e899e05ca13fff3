-- The same as lane_states.sql where jobs can be taken out of a lane before they are claimed: such a position has a tombstone.
WITH lane AS MATERIALIZED (
    SELECT queue, priority, enqueue_shard AS shard, position.next AS claimed
      FROM {storage}.queue_enqueue_heads AS enqueue
      FULL JOIN {storage}.queue_claim_heads AS claim USING (queue, priority, enqueue_shard)
      LEFT JOIN pg_class AS sequence
        ON sequence.relnamespace = to_regnamespace(quote_ident($1)) AND sequence.relname = claim.seq_name AND sequence.relkind = 'S'
      LEFT JOIN awa_ingest_positions AS position ON position.sequence = sequence.oid
), gone AS MATERIALIZED (
    SELECT lane.queue, lane.priority, lane.shard, count(*) AS jobs
      FROM lane
      JOIN {storage}.ready_tombstones AS tombstone
        ON tombstone.queue = lane.queue AND tombstone.priority = lane.priority AND tombstone.enqueue_shard = lane.shard
       AND tombstone.lane_seq >= lane.claimed
     GROUP BY lane.queue, lane.priority, lane.shard
)
SELECT lane.queue, lane.priority, lane.shard,
       CASE WHEN lane.claimed IS NOT NULL THEN COALESCE(waiting.jobs, 0) - COALESCE(gone.jobs, 0) END,
       CASE WHEN gone.jobs IS NULL THEN waiting.oldest
            ELSE (SELECT min(segment.first_run_at)
                    FROM {storage}.ready_segments AS segment
                   WHERE segment.queue = lane.queue AND segment.priority = lane.priority AND segment.enqueue_shard = lane.shard
                     AND segment.next_lane_seq > lane.claimed
                     AND segment.next_lane_seq - GREATEST(segment.first_lane_seq, lane.claimed)
                         > (SELECT count(*)
                              FROM {storage}.ready_tombstones AS tombstone
                             WHERE tombstone.queue = lane.queue AND tombstone.priority = lane.priority
                               AND tombstone.enqueue_shard = lane.shard AND tombstone.lane_seq < segment.next_lane_seq
                               AND tombstone.lane_seq >= GREATEST(segment.first_lane_seq, lane.claimed)))
       END,
       newest.created_at
  FROM lane
  LEFT JOIN gone ON gone.queue = lane.queue AND gone.priority = lane.priority AND gone.shard = lane.shard
 CROSS JOIN LATERAL (
     SELECT sum(segment.next_lane_seq - GREATEST(segment.first_lane_seq, lane.claimed))::bigint AS jobs,
            min(segment.first_run_at) AS oldest
       FROM {storage}.ready_segments AS segment
      WHERE segment.queue = lane.queue AND segment.priority = lane.priority AND segment.enqueue_shard = lane.shard
        AND segment.next_lane_seq > lane.claimed) AS waiting
  LEFT JOIN LATERAL (
     SELECT segment.created_at
       FROM {storage}.ready_segments AS segment
      WHERE segment.queue = lane.queue AND segment.priority = lane.priority AND segment.enqueue_shard = lane.shard
      ORDER BY segment.next_lane_seq DESC
      LIMIT 1) AS newest ON true
 ORDER BY lane.queue, lane.priority, lane.shard
