-- Who is enqueueing is waited for, and nobody enqueues meanwhile.
LOCK TABLE awa_ingest.ready_entries, awa_ingest.ready_segments, awa_ingest.deferred_jobs, awa_ingest.job_unique_claims
    IN SHARE ROW EXCLUSIVE MODE
