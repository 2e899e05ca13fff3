-- Jobs that did not get their key, in input order, with the holder (NULL if it let go just now).
SELECT spool.ord, claim.job_id, spool.unique_key
  FROM awa_ingest_spool AS spool
  LEFT JOIN {shared}.job_unique_claims AS claim ON claim.unique_key = spool.unique_key
 WHERE spool.claims AND claim.job_id IS DISTINCT FROM spool.job_id
 ORDER BY spool.ord
