SELECT EXISTS (SELECT FROM {storage}.leases{suffix})
