-- Takes key $1 for job $2, and waits for a transaction that holds it and is still open.
INSERT INTO {shared}.job_unique_claims AS claim (unique_key, job_id) VALUES ($1, $2) ON CONFLICT (unique_key) DO NOTHING
