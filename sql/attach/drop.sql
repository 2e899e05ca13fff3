DROP FUNCTION IF EXISTS awa_ingest.insert_jobs_compat_batch(text[], text[], jsonb[], text[], smallint[], smallint[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], boolean);
DROP FUNCTION IF EXISTS awa_ingest.insert_many_skip_unique_conflicts(jsonb);
DROP FUNCTION IF EXISTS awa_ingest.last_ingest_jobs();
