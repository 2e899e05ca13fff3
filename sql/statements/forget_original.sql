DELETE FROM awa_ingest.originals AS original WHERE original.name = 'awa.insert_job_compat'
