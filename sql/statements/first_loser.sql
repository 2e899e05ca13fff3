-- The first job that did not get its key, the holder (NULL if it let go just now), the key, and the holder's place if it is in the same
-- request. $1 is the transaction that claimed.
SELECT loser.ord, loser.holder, loser.unique_key,
       (SELECT twin.ord FROM awa_ingest_spool AS twin WHERE twin.job_id = loser.holder AND loser.is_ours)
  FROM (SELECT spool.ord, claim.job_id AS holder, spool.unique_key, claim.xmin = $1 AS is_ours
          FROM awa_ingest_spool AS spool
          LEFT JOIN LATERAL (SELECT held.job_id, held.xmin FROM {shared}.job_unique_claims AS held
                              WHERE held.unique_key = spool.unique_key OFFSET 0) AS claim ON true
         WHERE spool.claims AND (claim.job_id = spool.job_id AND claim.xmin = $1) IS NOT TRUE
         ORDER BY spool.ord
         LIMIT 1) AS loser
