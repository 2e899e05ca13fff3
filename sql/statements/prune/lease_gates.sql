-- Running jobs keep slot $1 of generation $2.
SELECT CASE WHEN EXISTS (SELECT FROM {storage}.leases{suffix}) THEN 'leases' END
