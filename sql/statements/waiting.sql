-- Everything that waits in the embedded storage, lane by lane in the lane's order, with ids of sequence $1 in the order of its own.
WITH waiting AS MATERIALIZED (
    SELECT ready.job_id, ready.kind, ready.queue, ready.args, 'available' AS state, ready.priority, ready.max_attempts, ready.run_at,
           ready.unique_key, ready.unique_states, ready.payload, ready.enqueue_shard, ready.lane_seq
      FROM awa_ingest.ready_entries AS ready
    UNION ALL
    SELECT deferred.job_id, deferred.kind, deferred.queue, deferred.args, deferred.state::text, deferred.priority,
           deferred.max_attempts, deferred.run_at, deferred.unique_key, deferred.unique_states, deferred.payload, 0::smallint, NULL
      FROM awa_ingest.deferred_jobs AS deferred
), numbered AS MATERIALIZED (
    SELECT ordered.job_id, nextval($1) AS id
      FROM (SELECT waiting.job_id FROM waiting ORDER BY waiting.job_id) AS ordered
)
SELECT waiting.job_id, numbered.id, waiting.kind, waiting.queue, waiting.args, waiting.state, waiting.priority, waiting.max_attempts,
       waiting.run_at, waiting.unique_key, waiting.unique_states, waiting.payload, waiting.enqueue_shard
  FROM waiting
  JOIN numbered USING (job_id)
 ORDER BY waiting.queue, waiting.priority, waiting.enqueue_shard, waiting.lane_seq, waiting.job_id
