-- The greatest id of a job of the canonical engine.
SELECT GREATEST((SELECT max(job.id) FROM awa.jobs_hot AS job), (SELECT max(job.id) FROM awa.scheduled_jobs AS job))
