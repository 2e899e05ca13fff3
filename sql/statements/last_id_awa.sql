-- The greatest id of a job that awa's queue storage knows of, by the tables that have an index on it.
SELECT GREATEST(
    (SELECT max(job.job_id) FROM {storage}.ready_entries AS job), (SELECT max(job.job_id) FROM {storage}.deferred_jobs AS job),
    (SELECT max(job.job_id) FROM {storage}.leases AS job), (SELECT max(job.job_id) FROM {storage}.lease_claims AS job),
    (SELECT max(job.job_id) FROM {storage}.lease_claim_closures AS job), (SELECT max(job.job_id) FROM {storage}.done_entries AS job),
    (SELECT max(job.job_id) FROM {storage}.dlq_entries AS job))
