-- The one owner of the given tables ($1 schemas, $2 names) and functions ($3, as text); NULL where owners differ, where something is
-- missing, or where a name is not a plain table. Reads nothing but the system's catalogs.
SELECT CASE WHEN count(*) FILTER (WHERE found.owner IS NULL) = 0 AND count(DISTINCT found.owner) = 1 THEN min(found.owner) END
  FROM (SELECT (SELECT class.relowner::bigint
                  FROM pg_class AS class
                 WHERE class.relname = wanted.name AND class.relnamespace = to_regnamespace(quote_ident(wanted.schema))
                   AND class.relkind IN ('r', 'p') AND NOT class.relhasrules)
          FROM unnest($1::text[], $2::text[]) AS wanted (schema, name)
        UNION ALL
        SELECT (SELECT function.proowner::bigint FROM pg_proc AS function WHERE function.oid = to_regprocedure(wanted.signature))
          FROM unnest($3::text[]) AS wanted (signature)) AS found (owner)
