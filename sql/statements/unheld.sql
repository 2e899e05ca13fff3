-- Whether a key is held by nobody although claiming it failed: its holder let it go in between.
SELECT EXISTS (
    SELECT FROM awa_ingest_spool AS spool
     WHERE spool.claims
       AND NOT EXISTS (SELECT FROM {shared}.job_unique_claims AS claim WHERE claim.unique_key = spool.unique_key))
