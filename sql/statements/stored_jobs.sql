-- Jobs of queue storage by ranges of ids, from $1 to $2, as awa.jobs shows them while they wait. A job that was retried has several ready
-- rows: the first one is as it was enqueued.
SELECT DISTINCT ON (job.job_id)
       job.job_id, job.kind, job.queue, job.args, job.state, job.priority, job.attempt, job.max_attempts, job.run_at, NULL::timestamptz,
       NULL::timestamptz, job.attempted_at, NULL::timestamptz, job.created_at, '{}'::jsonb[], COALESCE(job.payload -> 'metadata', '{}'),
       ARRAY(SELECT jsonb_array_elements_text(job.payload -> 'tags')), job.unique_key, job.unique_states::bit(8), NULL::uuid,
       NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::text, job.run_lease, NULL::jsonb
  FROM unnest($1, $2) AS ids (first, last)
 CROSS JOIN LATERAL (
        SELECT ready.job_id, ready.kind, ready.queue, ready.args, 'available'::awa.job_state AS state, ready.priority, ready.attempt,
               ready.max_attempts, ready.run_at, ready.attempted_at, ready.created_at, ready.payload, ready.unique_key,
               ready.unique_states, ready.run_lease
          FROM {storage}.ready_entries AS ready
         WHERE ready.job_id BETWEEN ids.first AND ids.last
        UNION ALL
        SELECT deferred.job_id, deferred.kind, deferred.queue, deferred.args, deferred.state, deferred.priority, deferred.attempt,
               deferred.max_attempts, deferred.run_at, deferred.attempted_at, deferred.created_at, deferred.payload, deferred.unique_key,
               deferred.unique_states, deferred.run_lease
          FROM {storage}.deferred_jobs AS deferred
         WHERE deferred.job_id BETWEEN ids.first AND ids.last) AS job
 ORDER BY job.job_id, job.attempt, job.run_lease, job.attempted_at NULLS FIRST
