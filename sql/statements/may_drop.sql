-- Whether the caller may drop all of these: extensions $1, schemas $2, and what the roles $3 own.
SELECT NOT EXISTS (SELECT FROM pg_extension AS extension
                    WHERE extension.extname = ANY ($1) AND NOT pg_has_role(extension.extowner, 'USAGE'))
   AND NOT EXISTS (SELECT FROM pg_namespace AS namespace
                    WHERE namespace.nspname = ANY ($2) AND NOT pg_has_role(namespace.nspowner, 'USAGE'))
   AND NOT EXISTS (SELECT FROM unnest($3) AS role (oid) WHERE NOT pg_has_role(role.oid, 'USAGE'))
