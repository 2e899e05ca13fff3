-- Deferred jobs have no lane, no segment and no wake-up. $1 is the call's clock.
INSERT INTO {storage}.deferred_jobs (
    job_id, kind, queue, args, state, priority, attempt, run_lease, max_attempts, run_at, attempted_at, finalized_at, created_at,
    unique_key, unique_states, payload)
SELECT spool.job_id, spool.kind, spool.queue, spool.args, spool.state::{shared}.job_state, spool.priority, 0, 0,
       spool.max_attempts, COALESCE(spool.run_at, $1), NULL, NULL, $1, spool.unique_key, spool.unique_states,
       spool.payload
  FROM awa_ingest_spool AS spool
 WHERE spool.lane IS NULL
