INSERT INTO awa_ingest.maintenance_records (started_at, task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
RETURNING id
