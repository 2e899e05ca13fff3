UPDATE awa_ingest.maintenance_records SET repeated = $2 WHERE id = $1
