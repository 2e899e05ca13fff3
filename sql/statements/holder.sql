-- The job that holds key $1.
SELECT claim.job_id FROM {shared}.job_unique_claims AS claim WHERE claim.unique_key = $1
