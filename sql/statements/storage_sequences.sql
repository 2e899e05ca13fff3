-- The sequences in schema $1.
SELECT class.oid::bigint FROM pg_class AS class WHERE class.relnamespace = $1 AND class.relkind = 'S'
