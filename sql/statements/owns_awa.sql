-- Whether the caller owns schema awa.
SELECT pg_has_role(namespace.nspowner, 'USAGE') FROM pg_namespace AS namespace WHERE namespace.nspname = 'awa'
