-- Jobs that did not get their key, in input order, with the holder (NULL if it let go just now). $1 is the transaction that claimed: ids alone
-- do not tell, since awa's two engines count theirs apart and share the claims. A look-up for each key: the plan is kept, and must not come to read
-- all claims that there are.
SELECT spool.ord, claim.job_id, spool.unique_key
  FROM awa_ingest_spool AS spool
  LEFT JOIN LATERAL (SELECT held.job_id, held.xmin FROM {shared}.job_unique_claims AS held
                      WHERE held.unique_key = spool.unique_key OFFSET 0) AS claim ON true
 WHERE spool.claims AND (claim.job_id = spool.job_id AND claim.xmin = $1) IS NOT TRUE
 ORDER BY spool.ord
