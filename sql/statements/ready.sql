-- Ready rows into slot $1, generation $2. $3 holds each lane's first position; $4 is the call's clock.
INSERT INTO {storage}.ready_entries{suffix} (
    ready_slot, ready_generation, job_id, kind, queue, args, priority, attempt, run_lease, max_attempts, lane_seq, enqueue_shard,
    run_at, attempted_at, created_at, unique_key, unique_states, payload)
SELECT $1, $2, spool.job_id, spool.kind, spool.queue, spool.args, spool.priority, 0, 0, spool.max_attempts,
       ($3::bigint[])[spool.lane] + spool.position, spool.shard, COALESCE(spool.run_at, $4), NULL, $4,
       spool.unique_key, spool.unique_states,
       spool.payload
  FROM awa_ingest_spool AS spool
 WHERE spool.lane IS NOT NULL
