TRUNCATE {storage}.leases{suffix}
