-- Jobs that were moved, that is: read, and not left.
DELETE FROM awa_ingest.ready_entries AS moved
 USING awa_ingest_adopted AS adopted
 WHERE moved.job_id = adopted.job_id
   AND NOT EXISTS (SELECT FROM awa_ingest_left AS kept WHERE kept.ord = adopted.ord)
