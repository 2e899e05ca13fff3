-- Adds what goes with the slot to the permanent counts, counted from the rows themselves; what was carried ($1 as there) stays.
INSERT INTO {storage}.queue_terminal_rollups AS rollup (queue, priority, pruned_completed_count, pruned_failed_count)
SELECT gone.queue, gone.priority, count(*) FILTER (WHERE NOT gone.failed), count(*) FILTER (WHERE gone.failed)
  FROM (SELECT done.queue, done.priority, done.state = 'failed' AS failed
          FROM {storage}.done_entries{suffix} AS done
         WHERE done.state <> 'failed' OR done.finalized_at < $1
        UNION ALL
        SELECT batch.queue, batch.priority, false
          FROM {storage}.receipt_completion_batches{suffix} AS batch
         CROSS JOIN LATERAL unnest(batch.job_ids, batch.run_leases) AS job (job_id, run_lease)
         WHERE NOT EXISTS (
             SELECT FROM {storage}.receipt_completion_tombstones{suffix} AS tombstone
              WHERE tombstone.ready_generation = batch.ready_generation
                AND tombstone.job_id = job.job_id AND tombstone.run_lease = job.run_lease)) AS gone
 GROUP BY gone.queue, gone.priority
 ORDER BY gone.queue, gone.priority
    ON CONFLICT (queue, priority) DO UPDATE
   SET pruned_completed_count = GREATEST(0, rollup.pruned_completed_count + EXCLUDED.pruned_completed_count),
       pruned_failed_count = GREATEST(0, rollup.pruned_failed_count + EXCLUDED.pruned_failed_count)
