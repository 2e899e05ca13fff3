-- The version of an awa schema that has no queue storage yet.
SELECT 'canonical', NULL::text, (SELECT version.version FROM awa.schema_version AS version ORDER BY version.version DESC LIMIT 1), false
