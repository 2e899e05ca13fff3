-- Removes the waiting job $1, releases its key, and cuts its position out of its segment: every position in a segment has a job.
WITH ready AS (
    DELETE FROM awa_ingest.ready_entries AS job
     WHERE job.job_id = $1
    RETURNING job.job_id, job.unique_key, job.ready_slot, job.ready_generation, job.queue, job.priority, job.enqueue_shard, job.lane_seq
), cut AS (
    DELETE FROM awa_ingest.ready_segments AS segment
     USING ready
     WHERE segment.ready_slot = ready.ready_slot AND segment.ready_generation = ready.ready_generation AND segment.queue = ready.queue
       AND segment.priority = ready.priority AND segment.enqueue_shard = ready.enqueue_shard
       AND ready.lane_seq >= segment.first_lane_seq AND ready.lane_seq < segment.next_lane_seq
    RETURNING segment.*, ready.lane_seq
), kept AS (
    INSERT INTO awa_ingest.ready_segments (
        ready_slot, ready_generation, queue, priority, enqueue_shard, first_lane_seq, next_lane_seq, first_run_at, created_at)
    SELECT cut.ready_slot, cut.ready_generation, cut.queue, cut.priority, cut.enqueue_shard, piece.first, piece.next, cut.first_run_at,
           cut.created_at
      FROM cut
     CROSS JOIN LATERAL (VALUES (cut.first_lane_seq, cut.lane_seq), (cut.lane_seq + 1, cut.next_lane_seq)) AS piece (first, next)
     WHERE piece.first < piece.next
), deferred AS (
    DELETE FROM awa_ingest.deferred_jobs AS job WHERE job.job_id = $1 RETURNING job.job_id, job.unique_key
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
