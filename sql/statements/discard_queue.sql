-- Removes the jobs that wait in the queues $1, with their segments, and releases their keys. In one statement, so that rows and segments are
-- those of the same commits.
WITH ready AS (
    DELETE FROM awa_ingest.ready_entries AS job WHERE job.queue = ANY ($1) RETURNING job.job_id, job.unique_key
), segments AS (
    DELETE FROM awa_ingest.ready_segments AS segment WHERE segment.queue = ANY ($1)
), deferred AS (
    DELETE FROM awa_ingest.deferred_jobs AS job WHERE job.queue = ANY ($1) RETURNING job.job_id, job.unique_key
), gone AS (
    SELECT ready.job_id, ready.unique_key FROM ready
    UNION ALL
    SELECT deferred.job_id, deferred.unique_key FROM deferred
), released AS (
    DELETE FROM awa_ingest.job_unique_claims AS claim
     USING gone
     WHERE claim.unique_key = gone.unique_key AND claim.job_id = gone.job_id
)
SELECT count(*) FROM gone
