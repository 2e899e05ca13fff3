-- awa's compact payload: only what is not empty, and NULL if nothing is.
CASE WHEN spool.metadata IS NULL AND spool.tags IS NULL THEN NULL
     WHEN spool.tags IS NULL THEN jsonb_build_object('metadata', spool.metadata)
     WHEN spool.metadata IS NULL THEN jsonb_build_object('tags', spool.tags)
     ELSE jsonb_build_object('metadata', spool.metadata, 'tags', spool.tags)
END
