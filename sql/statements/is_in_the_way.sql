SELECT EXISTS (SELECT FROM pg_locks AS lock WHERE NOT lock.granted AND $1 = ANY (pg_blocking_pids(lock.pid)))
