-- The greatest id of a job in the embedded storage.
SELECT GREATEST(
    (SELECT max(job.job_id) FROM {storage}.ready_entries AS job), (SELECT max(job.job_id) FROM {storage}.deferred_jobs AS job))
