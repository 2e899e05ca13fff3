DELETE FROM awa_ingest.job_unique_claims AS moved
 USING awa_ingest_adopted AS adopted
 WHERE moved.job_id = adopted.job_id
   AND NOT EXISTS (SELECT FROM awa_ingest_left AS kept WHERE kept.ord = adopted.ord)
