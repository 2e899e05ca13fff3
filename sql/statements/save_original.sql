INSERT INTO awa_ingest.originals (name, definition) VALUES ('awa.insert_job_compat', $1)
    ON CONFLICT (name, saved_at) DO UPDATE SET definition = excluded.definition
