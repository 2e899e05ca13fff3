-- Takes key $1 for job $2, or raises what awa's own function raises.
INSERT INTO {shared}.job_unique_claims AS claim (unique_key, job_id) VALUES ($1, $2)
