LOCK TABLE {storage}.leases{suffix} IN ACCESS EXCLUSIVE MODE
