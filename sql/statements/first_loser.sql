-- The first job that did not get its key, the holder (NULL if it let go just now), the key, and the holder's place if it is in the same
-- request.
SELECT loser.ord, loser.holder, loser.unique_key,
       (SELECT twin.ord FROM awa_ingest_spool AS twin WHERE twin.job_id = loser.holder)
  FROM (SELECT spool.ord, claim.job_id AS holder, spool.unique_key
          FROM awa_ingest_spool AS spool
          LEFT JOIN {shared}.job_unique_claims AS claim ON claim.unique_key = spool.unique_key
         WHERE spool.claims AND claim.job_id IS DISTINCT FROM spool.job_id
         ORDER BY spool.ord
         LIMIT 1) AS loser
