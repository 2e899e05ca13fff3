-- Whether one of the roles $1 owns the extension, or a schema that holds a part of it.
SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'awa_ingest' AND extowner = ANY ($1))
    OR EXISTS (SELECT FROM pg_namespace WHERE nspname IN ('awa', 'awa_ingest') AND nspowner = ANY ($1))
