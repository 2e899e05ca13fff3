-- One job of the canonical engine, returned as awa.jobs shows it. For its time see canonical_hot.sql.
INSERT INTO awa.jobs_hot (kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states)
VALUES ($1, $2, $3, $4::awa.job_state, $5, $6, COALESCE($7, CASE WHEN octet_length($2) < 60 THEN now() ELSE clock_timestamp() END), $8, $9, $10, $11)
RETURNING id, kind, queue, args, state, priority, attempt, max_attempts, run_at, heartbeat_at, deadline_at, attempted_at, finalized_at,
          created_at, errors, metadata, tags, unique_key, unique_states, callback_id, callback_timeout_at, callback_filter,
          callback_on_complete, callback_on_fail, callback_transform, run_lease, progress
