SELECT EXISTS (
    SELECT FROM awa_ingest.maintenance_records AS run
     WHERE run.task = 'statistics' AND run.started_at >= $1 AND run.outcome IN ('skipped_lock', 'failed'))
