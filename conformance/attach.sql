-- For template1, so that every database of the server has it. awa's tests migrate databases of their own, and drop awa
-- in them, the extension with it, to migrate anew: whenever a migration reaches version 40, the replacement is attached.
-- (One test writes that version into a table of its own, in a schema without functions.)
CREATE SCHEMA conformance;
CREATE TABLE conformance.attached (at timestamptz NOT NULL DEFAULT clock_timestamp());

CREATE FUNCTION conformance.attach() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_proc WHERE proname = 'insert_job_compat' AND pronamespace = 'awa'::regnamespace) THEN
        CREATE EXTENSION IF NOT EXISTS awa_ingest;
        PERFORM awa_ingest.attach();
        INSERT INTO conformance.attached DEFAULT VALUES;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION conformance.watch_migrations() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'awa.schema_version') THEN
        CREATE TRIGGER attach AFTER INSERT ON awa.schema_version
            FOR EACH ROW WHEN (NEW.version = 40) EXECUTE FUNCTION conformance.attach();
    END IF;
END
$$;
CREATE EVENT TRIGGER watch_migrations ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
    EXECUTE FUNCTION conformance.watch_migrations();
