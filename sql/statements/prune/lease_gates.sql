-- Running jobs keep the slot.
SELECT CASE WHEN EXISTS (SELECT FROM {storage}.leases{suffix}) THEN 'leases' END
