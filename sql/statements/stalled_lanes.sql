-- Which of the lanes ($1 queues, $2 priorities, $3 shards, with their claim cursors $4) awa's claim function never leaves: it looks at the
-- first job at or behind the cursor in the slot of the first segment there. If that job was claimed, it moves the cursor over the claimed
-- run that begins *at* the cursor, so that it stands before a gap; and it stands where the segment's jobs are gone.
-- The target is the first job that nobody has claimed, in whatever slot, else the end of all that was written. Whoever moves the cursor
-- there holds the lane's locks.
WITH lane AS (
    SELECT * FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS lane (queue, priority, shard, cursor, number)
), standing AS (
    SELECT lane.*
      FROM lane
     CROSS JOIN LATERAL (
         SELECT segment.ready_slot, segment.ready_generation
           FROM {storage}.ready_segments AS segment
          WHERE segment.queue = lane.queue AND segment.priority = lane.priority AND segment.enqueue_shard = lane.shard
            AND segment.next_lane_seq > lane.cursor
          ORDER BY segment.next_lane_seq
          LIMIT 1) AS first
      LEFT JOIN LATERAL (
         SELECT ready.ready_slot, ready.ready_generation, ready.lane_seq
           FROM {storage}.ready_entries AS ready
          WHERE ready.ready_slot = first.ready_slot AND ready.ready_generation = first.ready_generation
            AND ready.queue = lane.queue AND ready.priority = lane.priority AND ready.enqueue_shard = lane.shard
            AND ready.lane_seq >= lane.cursor
          ORDER BY ready.lane_seq
          LIMIT 1) AS head ON true
     WHERE head.lane_seq IS NULL
        OR head.lane_seq > lane.cursor
           AND (EXISTS (
                    SELECT FROM {storage}.ready_tombstones AS tombstone
                     WHERE tombstone.ready_slot = head.ready_slot AND tombstone.ready_generation = head.ready_generation
                       AND tombstone.queue = lane.queue AND tombstone.priority = lane.priority AND tombstone.enqueue_shard = lane.shard
                       AND tombstone.lane_seq = head.lane_seq)
             OR EXISTS (
                    SELECT FROM {storage}.ready_claim_attempt_batches AS claim
                     WHERE claim.ready_slot = head.ready_slot AND claim.ready_generation = head.ready_generation
                       AND claim.queue = lane.queue AND claim.priority = lane.priority AND claim.enqueue_shard = lane.shard
                       AND claim.first_lane_seq <= head.lane_seq AND claim.next_lane_seq > head.lane_seq
                       AND claim.lane_ranges @> head.lane_seq))
)
SELECT standing.number, COALESCE(waiting.lane_seq, GREATEST(last.next, ending.next)), waiting.run_at
  FROM standing
  LEFT JOIN LATERAL (
      SELECT ready.lane_seq, ready.run_at
        FROM {storage}.ready_entries AS ready
       WHERE ready.queue = standing.queue AND ready.priority = standing.priority AND ready.enqueue_shard = standing.shard
         AND ready.lane_seq >= standing.cursor
         AND NOT EXISTS (
             SELECT FROM {storage}.ready_tombstones AS tombstone
              WHERE tombstone.ready_slot = ready.ready_slot AND tombstone.ready_generation = ready.ready_generation
                AND tombstone.queue = ready.queue AND tombstone.priority = ready.priority
                AND tombstone.enqueue_shard = ready.enqueue_shard AND tombstone.lane_seq = ready.lane_seq)
         AND NOT EXISTS (
             SELECT FROM {storage}.ready_claim_attempt_batches AS claim
              WHERE claim.ready_slot = ready.ready_slot AND claim.ready_generation = ready.ready_generation
                AND claim.queue = ready.queue AND claim.priority = ready.priority AND claim.enqueue_shard = ready.enqueue_shard
                AND claim.first_lane_seq <= ready.lane_seq AND claim.next_lane_seq > ready.lane_seq
                AND claim.lane_ranges @> ready.lane_seq)
       ORDER BY ready.lane_seq
       LIMIT 1) AS waiting ON true
 CROSS JOIN LATERAL (
      SELECT max(ready.lane_seq) + 1 AS next
        FROM {storage}.ready_entries AS ready
       WHERE ready.queue = standing.queue AND ready.priority = standing.priority AND ready.enqueue_shard = standing.shard) AS last
 CROSS JOIN LATERAL (
      SELECT max(segment.next_lane_seq) AS next
        FROM {storage}.ready_segments AS segment
       WHERE segment.queue = standing.queue AND segment.priority = standing.priority AND segment.enqueue_shard = standing.shard) AS ending
 ORDER BY standing.number
