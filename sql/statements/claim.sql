-- Takes the keys in key order, so that two batches never wait for each other crosswise. A key that is claimed in a transaction
-- still open elsewhere is waited for. The first job with a key wins within the request.
INSERT INTO {shared}.job_unique_claims AS claim (unique_key, job_id)
SELECT spool.unique_key, spool.job_id
  FROM awa_ingest_spool AS spool
 WHERE spool.claims
 ORDER BY spool.unique_key, spool.ord
    ON CONFLICT (unique_key) DO NOTHING
