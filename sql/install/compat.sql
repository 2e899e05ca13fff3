-- What awa.insert_job_compat was before attach() replaced it. Part of a dump, so that a restored database can go back, too. The data alone may be
-- restored into a database that is attached already: then there are two rows, and the newest counts.
CREATE TABLE awa_ingest.originals (
    name text,
    definition text NOT NULL,
    saved_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, saved_at)
);
COMMENT ON TABLE awa_ingest.originals IS 'Definitions of awa''s functions that awa_ingest stands in for';
SELECT pg_catalog.pg_extension_config_dump('awa_ingest.originals', '');

CREATE FUNCTION awa_ingest.attach() RETURNS void
AS 'MODULE_PATHNAME', 'awa_ingest_attach' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.attach() IS
    'Puts the extension''s function in the place of awa.insert_job_compat, so that awa''s clients speed up unchanged; for the owner of that';

CREATE FUNCTION awa_ingest.detach() RETURNS void
AS 'MODULE_PATHNAME', 'awa_ingest_detach' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.detach() IS 'Gives awa its own insert_job_compat back; for its owner';

CREATE FUNCTION awa_ingest.adopt(
    on_conflict text DEFAULT 'error',
    OUT ready bigint,
    OUT deferred bigint,
    OUT skipped bigint
) AS 'MODULE_PATHNAME', 'awa_ingest_adopt' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.adopt(text) IS
    'Moves all jobs that wait in the embedded storage into awa''s, and returns how many; skip leaves those there whose unique key is taken';

REVOKE ALL ON FUNCTION awa_ingest.adopt(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.attach() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.detach() FROM PUBLIC;
