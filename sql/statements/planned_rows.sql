SELECT class.reltuples::bigint FROM pg_class AS class WHERE class.oid = $1
