TRUNCATE {storage}.lease_claims{suffix}, {storage}.lease_claim_batches{suffix}, {storage}.lease_claim_closures{suffix},
    {storage}.lease_claim_closure_batches{suffix}
