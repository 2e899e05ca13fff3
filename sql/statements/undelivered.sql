SELECT EXISTS (SELECT FROM awa_ingest.ready_entries) OR EXISTS (SELECT FROM awa_ingest.deferred_jobs)
