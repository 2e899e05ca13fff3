-- One deferred job.
INSERT INTO {storage}.deferred_jobs (
    job_id, kind, queue, args, state, priority, attempt, run_lease, max_attempts, run_at, attempted_at, finalized_at, created_at,
    unique_key, unique_states, payload)
VALUES ($1, $2, $3, $4, $5::{shared}.job_state, $6, 0, 0, $7, $8, NULL, NULL, $9, $10, $11, $12)
