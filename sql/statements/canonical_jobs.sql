-- Jobs of the canonical engine by ranges of ids, from $1 to $2, as awa.jobs shows them.
SELECT job.id, job.kind, job.queue, job.args, job.state, job.priority, job.attempt, job.max_attempts, job.run_at,
       job.heartbeat_at, job.deadline_at, job.attempted_at, job.finalized_at, job.created_at, job.errors, job.metadata,
       job.tags, job.unique_key, job.unique_states, job.callback_id, job.callback_timeout_at, job.callback_filter,
       job.callback_on_complete, job.callback_on_fail, job.callback_transform, job.run_lease, job.progress
  FROM unnest($1, $2) AS ids (first, last)
 CROSS JOIN LATERAL (
        SELECT * FROM awa.jobs_hot AS hot WHERE hot.id BETWEEN ids.first AND ids.last
        UNION ALL
        SELECT * FROM awa.scheduled_jobs AS scheduled WHERE scheduled.id BETWEEN ids.first AND ids.last) AS job
 ORDER BY job.id
