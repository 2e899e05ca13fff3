-- The active queue storage schema, NULL while the canonical engine is active, and the version of awa's schema.
SELECT awa.active_queue_storage_schema(), (SELECT max(version.version) FROM awa.schema_version AS version)
