-- Logical replication of the extension's own tables: docs/operations.md, "Replication".

CREATE FUNCTION awa_ingest.keep_own_rows() RETURNS trigger
AS 'MODULE_PATHNAME', 'awa_ingest_keep_own_rows' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
REVOKE ALL ON FUNCTION awa_ingest.keep_own_rows() FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.keep_own_rows() IS
    'Leaves out rows that logical replication brings where rows with their keys exist, so that they never stop a subscription';

-- Triggers of BEFORE ROW fire in the order of their names: this one comes before lane_sequence, which makes sequences.
DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT class.oid FROM pg_catalog.pg_class AS class
         WHERE class.relnamespace = 'awa_ingest'::regnamespace AND class.relkind = 'r'
           AND (class.relispartition
                OR class.relname IN ('queue_meta', 'queue_lanes', 'queue_enqueue_heads', 'queue_claim_heads', 'job_unique_claims', 'deferred_jobs'))
    LOOP
        EXECUTE format('CREATE TRIGGER keep_own_rows BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION awa_ingest.keep_own_rows()', relation);
        EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER keep_own_rows', relation);
    END LOOP;
END
$$;

-- What awa's function was in this database: functions are not replicated.
CREATE TRIGGER keep_own_rows BEFORE INSERT OR UPDATE OR DELETE ON awa_ingest.originals
    FOR EACH ROW EXECUTE FUNCTION awa_ingest.keep_own_rows('all');
ALTER TABLE awa_ingest.originals ENABLE REPLICA TRIGGER keep_own_rows;

-- CREATE EXTENSION makes this row on both sides. The publisher's wins, in the initial copy as well: replicated jobs are in its ring slots.
ALTER TABLE awa_ingest.queue_ring_state ENABLE ALWAYS TRIGGER replace_ring_state;

-- Without a replica identity a table refuses UPDATE and DELETE (55000) while a publication includes it. The other tables have primary keys.
-- Indexes that exist anyway serve: FULL would write whole rows to the log, and have subscribers search for them row by row.
ALTER TABLE awa_ingest.job_unique_claims REPLICA IDENTITY USING INDEX idx_awa_jobs_unique;
DO $$
DECLARE
    part record;
BEGIN
    -- The parents, too: with publish_via_partition_root it is theirs that subscribers are told.
    FOR part IN
        SELECT class.oid::regclass AS relation, class.relname || '_lane' AS lane
          FROM pg_catalog.pg_class AS class
         WHERE class.relnamespace = 'awa_ingest'::regnamespace AND (class.relispartition OR class.relkind = 'p')
           AND class.relkind IN ('r', 'p')
    LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', part.relation, part.lane);
    END LOOP;
END
$$;
