-- Whether one of the roles $1 owns the extension, the language of some of its functions, or a schema that holds a part of it.
SELECT EXISTS (SELECT FROM pg_extension WHERE extname IN ('awa_ingest', 'plpgsql') AND extowner = ANY ($1))
    OR EXISTS (SELECT FROM pg_namespace WHERE nspname IN ('awa', 'awa_ingest') AND nspowner = ANY ($1))
