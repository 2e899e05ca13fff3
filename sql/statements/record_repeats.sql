UPDATE awa_ingest.maintenance_runs SET repeated = $2 WHERE id = $1
