-- Why slot $1 must stay, NULL if it need not: running jobs, jobs that nobody has claimed, claims that are not closed. Of all generations:
-- a producer that takes a whole turn of the ring leaves jobs of an older one, which awa works as any others.
-- A lane whose claim head is missing says nothing about what was claimed, and counts as waiting.
SELECT CASE
    WHEN EXISTS (SELECT FROM {storage}.leases AS lease WHERE lease.ready_slot = $1)
    THEN 'leases'
    WHEN EXISTS (
        SELECT FROM {storage}.queue_claim_heads AS head
         CROSS JOIN LATERAL (SELECT {position} AS next OFFSET 0) AS claim
         CROSS JOIN LATERAL (
             SELECT FROM {storage}.ready_entries{suffix} AS ready
              WHERE ready.queue = head.queue AND ready.priority = head.priority AND ready.enqueue_shard = head.enqueue_shard
                AND ready.lane_seq >= claim.next
              LIMIT 1) AS waiting)
    THEN 'pending'
    WHEN EXISTS (
        SELECT FROM {storage}.ready_segments{suffix} AS segment
         WHERE NOT EXISTS (
             SELECT FROM {storage}.queue_claim_heads AS head
              WHERE head.queue = segment.queue AND head.priority = segment.priority AND head.enqueue_shard = segment.enqueue_shard))
    THEN 'pending'
    WHEN (SELECT count(*) FROM {storage}.lease_claims AS claim WHERE claim.ready_slot = $1)
         + (SELECT COALESCE(sum(batch.claimed_count), 0) FROM {storage}.lease_claim_batches AS batch
             WHERE batch.ready_slot = $1)
      <> (SELECT count(*) FROM {storage}.lease_claims AS claim
            JOIN {storage}.lease_claim_closures AS closure USING (claim_slot, job_id, run_lease)
           WHERE claim.ready_slot = $1)
         + (SELECT COALESCE(sum(batch.closed_count), 0) FROM {storage}.lease_claim_closure_batches AS batch
             WHERE batch.ready_slot = $1)
    THEN 'unclosed_claims'
END
