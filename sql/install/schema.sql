-- Schema awa holds the public functions. It belongs to awa where awa is installed, so it is never a member of this extension:
-- DROP EXTENSION must leave an awa database whole.
DO $$
BEGIN
    IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'awa_ingest needs a UTF-8 database, and this one is %', pg_catalog.getdatabaseencoding()
            USING ERRCODE = 'feature_not_supported', HINT = 'Create the database with ENCODING ''UTF8''.';
    END IF;
    IF pg_catalog.to_regnamespace('awa') IS NULL THEN
        CREATE SCHEMA awa;
        ALTER EXTENSION awa_ingest DROP SCHEMA awa;
    END IF;
END
$$;

CREATE SCHEMA awa_ingest;
COMMENT ON SCHEMA awa_ingest IS 'awa_ingest: storage of its own for databases without awa, and administration';
