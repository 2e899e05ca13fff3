-- Foreign tables that the command made or changed.
SELECT objid::int8 FROM pg_event_trigger_ddl_commands()
 WHERE classid = 'pg_class'::regclass AND objsubid = 0 AND object_type = 'foreign table'
