-- The definition that awa.insert_job_compat had before it was replaced.
SELECT original.definition FROM awa_ingest.originals AS original WHERE original.name = 'awa.insert_job_compat'
 ORDER BY original.saved_at DESC
 LIMIT 1
