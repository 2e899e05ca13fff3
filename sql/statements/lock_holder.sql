-- The process that holds lock $2 (src/workers/locks.rs) of database $1.
SELECT lock.pid
  FROM pg_locks AS lock
 WHERE lock.locktype = 'userlock' AND lock.database = $1 AND lock.classid = 6512 AND lock.objid::bigint = $2 AND lock.granted
