-- Claims that are not closed keep the slot: both sides are counted.
SELECT CASE
    WHEN (SELECT count(*) FROM {storage}.lease_claims{suffix})
         + (SELECT COALESCE(sum(batch.claimed_count), 0) FROM {storage}.lease_claim_batches{suffix} AS batch)
      <> (SELECT count(*) FROM {storage}.lease_claim_closures{suffix})
         + (SELECT COALESCE(sum(batch.closed_count), 0) FROM {storage}.lease_claim_closure_batches{suffix} AS batch)
    THEN 'open_claims'
END
