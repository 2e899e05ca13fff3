-- Available jobs of the canonical engine, in input order; its triggers notify, mark what changed, and find the claims taken already.
-- Due now is due at the transaction's time: the trigger that notifies compares with it. It fails for the names of long queues, whose jobs are
-- due a moment later, as awa's own function has it. $1 is the call's clock.
INSERT INTO awa.jobs_hot (
    id, kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states)
SELECT spool.job_id, spool.kind, spool.queue, spool.args, spool.state::awa.job_state, spool.priority, spool.max_attempts,
       COALESCE(spool.run_at, CASE WHEN octet_length(spool.queue) < 60 THEN now() ELSE $1 END), COALESCE(spool.payload -> 'metadata', '{}'),
       ARRAY(SELECT jsonb_array_elements_text(spool.payload -> 'tags')), spool.unique_key, spool.unique_states::bit(8)
  FROM awa_ingest_spool AS spool
 WHERE spool.state = 'available'
