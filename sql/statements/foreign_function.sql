-- A function of schema awa_ingest with a name of sql/attach/create.sql that does not belong to the extension's owner.
SELECT function.oid::regprocedure::text
  FROM pg_proc AS function
  JOIN pg_extension AS extension ON extension.extname = 'awa_ingest'
 WHERE function.pronamespace = (SELECT namespace.oid FROM pg_namespace AS namespace WHERE namespace.nspname = 'awa_ingest')
   AND function.proname IN ('insert_jobs_compat_batch', 'insert_many_skip_unique_conflicts', 'last_ingest_jobs')
   AND function.proowner <> extension.extowner
 LIMIT 1
