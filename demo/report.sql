-- What the demo did, read back from the storage.
SET search_path = sample, pg_catalog;

\echo
\echo 'Speed, each way in one transaction of its own:'
SELECT way, jobs, enqueued, jobs - enqueued AS "skipped (unique)",
       round(extract(epoch FROM ended - started) * 1000) AS ms,
       round(jobs / extract(epoch FROM ended - started)) AS "jobs/s"
FROM steps ORDER BY started;

CREATE VIEW stored AS
SELECT queue, 'available' AS state, job_id FROM awa_ingest.ready_entries
UNION ALL
SELECT queue, state::text, job_id FROM awa_ingest.deferred_jobs;

\echo 'Jobs in the storage, by queue and state:'
SELECT queue, state, count(*) AS jobs, min(job_id) AS "first id", max(job_id) AS "last id"
FROM stored GROUP BY queue, state ORDER BY queue, state;

\echo 'Lanes, in which workers take the jobs in order:'
SELECT queue, priority, enqueue_shard AS shard, count(*) AS jobs, min(lane_seq) AS "first position", max(lane_seq) AS "last position"
FROM awa_ingest.ready_entries GROUP BY queue, priority, enqueue_shard ORDER BY queue, priority, enqueue_shard;

\echo 'Charging the same three invoices again enqueues nothing, and says which jobs hold them:'
SELECT * FROM awa.enqueue_batch((SELECT jsonb_agg(job) FROM (TABLE charges LIMIT 3) AS again), on_conflict => 'skip');

\echo 'State of the extension:'
SELECT extension_version, storage, storage_schema, ready FROM awa_ingest.status();

-- A demo that lost a job must not look like a success.
SELECT sum(enqueued) = (SELECT count(*) FROM stored) AND sum(jobs) = 50000 AND sum(enqueued) < sum(jobs) AS complete
FROM steps \gset
\if :complete
\else
    \warn 'The storage does not hold what was enqueued.'
    SELECT 1 / 0;
\endif
