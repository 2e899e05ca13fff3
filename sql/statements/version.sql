-- The version of an awa schema that has no queue storage yet.
SELECT NULL::text, (SELECT max(version.version) FROM awa.schema_version AS version)
