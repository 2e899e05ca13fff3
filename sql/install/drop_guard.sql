-- An extension's own event triggers are gone when sql_drop fires, so the guard asks before the command starts.
CREATE FUNCTION awa_ingest.guard_drop() RETURNS event_trigger
AS 'MODULE_PATHNAME', 'awa_ingest_guard_drop' LANGUAGE C SET search_path = pg_catalog, pg_temp;
REVOKE ALL ON FUNCTION awa_ingest.guard_drop() FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.guard_drop() IS
    'Refuses to drop the extension while its embedded storage has undelivered jobs, unless awa_ingest.allow_drop is on';

CREATE EVENT TRIGGER awa_ingest_guard_drop ON ddl_command_start
    WHEN TAG IN ('DROP EXTENSION', 'DROP SCHEMA', 'DROP OWNED')
    EXECUTE FUNCTION awa_ingest.guard_drop();
COMMENT ON EVENT TRIGGER awa_ingest_guard_drop IS 'Keeps undelivered jobs of awa_ingest''s embedded storage from being dropped';
