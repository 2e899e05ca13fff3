-- Lanes of the storage in schema $1, and what waits in them. A segment is a run of positions with one run_at, each of which has a job, so
-- that counting needs no look at the jobs: what is not before the claim cursor waits.
WITH lane AS MATERIALIZED (
    SELECT queue, priority, enqueue_shard AS shard, position.next AS claimed
      FROM {storage}.queue_enqueue_heads AS enqueue
      FULL JOIN {storage}.queue_claim_heads AS claim USING (queue, priority, enqueue_shard)
      LEFT JOIN pg_class AS sequence
        ON sequence.relnamespace = to_regnamespace(quote_ident($1)) AND sequence.relname = claim.seq_name AND sequence.relkind = 'S'
      LEFT JOIN awa_ingest_positions AS position ON position.sequence = sequence.oid
)
SELECT lane.queue, lane.priority, lane.shard,
       CASE WHEN lane.claimed IS NOT NULL THEN COALESCE(waiting.jobs, 0) END, waiting.oldest, newest.created_at
  FROM lane
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
