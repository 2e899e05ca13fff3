-- Whether the slot has anything to prune.
SELECT EXISTS (SELECT FROM {storage}.lease_claims{suffix})
    OR EXISTS (SELECT FROM {storage}.lease_claim_batches{suffix})
    OR EXISTS (SELECT FROM {storage}.lease_claim_closures{suffix})
    OR EXISTS (SELECT FROM {storage}.lease_claim_closure_batches{suffix})
