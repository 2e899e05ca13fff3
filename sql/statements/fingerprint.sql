-- A text that is another one when rows of the storage in schema $1 were written, or its tables truncated.
SELECT format('%s %s %s', count(*), sum(class.relfilenode::bigint),
              sum(pg_stat_get_tuples_inserted(class.oid) + pg_stat_get_tuples_updated(class.oid) + pg_stat_get_tuples_deleted(class.oid)))
  FROM pg_class AS class
 WHERE class.relnamespace = $1 AND class.relkind = 'r' AND (class.relispartition OR class.relname LIKE '%heads')
