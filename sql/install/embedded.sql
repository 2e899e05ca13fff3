-- The embedded storage: awa's tables and columns where they mean the same, and only the indexes that a queue of its own needs.
-- Names compare bytewise (COLLATE "C"): they are identifiers, and the lane order of every writer is the order of their bytes.

CREATE TYPE awa_ingest.job_state AS ENUM (
    'scheduled', 'available', 'running', 'completed', 'retryable', 'failed', 'cancelled', 'waiting_external');
COMMENT ON TYPE awa_ingest.job_state IS 'States of a job, in the order of their bits in unique_states';

CREATE SEQUENCE awa_ingest.job_id_seq;
COMMENT ON SEQUENCE awa_ingest.job_id_seq IS 'Ids of jobs in the embedded storage, ascending in input order';

CREATE TABLE awa_ingest.queue_meta (
    queue          text COLLATE "C" PRIMARY KEY,
    enqueue_shards smallint NOT NULL DEFAULT 1,
    CONSTRAINT queue_meta_enqueue_shards_range CHECK (enqueue_shards BETWEEN 1 AND 64)
);
COMMENT ON TABLE awa_ingest.queue_meta IS 'Settings of a queue; a queue without a row has one shard';

CREATE TABLE awa_ingest.queue_lanes (
    queue    text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    PRIMARY KEY (queue, priority)
);
COMMENT ON TABLE awa_ingest.queue_lanes IS 'Queues (or their stripes) and priorities that have lanes';

CREATE TABLE awa_ingest.queue_enqueue_heads (
    queue         text COLLATE "C" NOT NULL,
    priority      smallint NOT NULL,
    enqueue_shard smallint NOT NULL DEFAULT 0,
    seq_name      text COLLATE "C",
    PRIMARY KEY (queue, priority, enqueue_shard)
);
COMMENT ON TABLE awa_ingest.queue_enqueue_heads IS 'Lanes, with the sequence that hands out their positions';

CREATE TABLE awa_ingest.queue_claim_heads (
    queue         text COLLATE "C" NOT NULL,
    priority      smallint NOT NULL,
    enqueue_shard smallint NOT NULL DEFAULT 0,
    seq_name      text COLLATE "C",
    PRIMARY KEY (queue, priority, enqueue_shard)
);
COMMENT ON TABLE awa_ingest.queue_claim_heads IS 'Lanes, with the sequence that says up to where they were claimed';

CREATE TABLE awa_ingest.queue_ring_state (
    singleton    boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    current_slot integer NOT NULL,
    generation   bigint NOT NULL,
    slot_count   integer NOT NULL
);
COMMENT ON TABLE awa_ingest.queue_ring_state IS 'The ring slot (partition) that ready rows go to';

CREATE TABLE awa_ingest.job_unique_claims (
    unique_key bytea NOT NULL,
    job_id     bigint NOT NULL
);
CREATE UNIQUE INDEX idx_awa_jobs_unique ON awa_ingest.job_unique_claims (unique_key);
COMMENT ON TABLE awa_ingest.job_unique_claims IS 'Unique keys and the jobs that hold them';

CREATE TABLE awa_ingest.deferred_jobs (
    job_id        bigint PRIMARY KEY,
    kind          text COLLATE "C" NOT NULL,
    queue         text COLLATE "C" NOT NULL,
    args          jsonb NOT NULL,
    state         awa_ingest.job_state NOT NULL CHECK (state IN ('scheduled', 'retryable')),
    priority      smallint NOT NULL,
    attempt       smallint NOT NULL DEFAULT 0,
    run_lease     bigint NOT NULL DEFAULT 0,
    max_attempts  smallint NOT NULL DEFAULT 25,
    run_at        timestamptz NOT NULL,
    attempted_at  timestamptz,
    finalized_at  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    unique_key    bytea,
    unique_states text COLLATE "C",
    payload       jsonb
);
CREATE INDEX deferred_jobs_due ON awa_ingest.deferred_jobs (run_at, job_id);
COMMENT ON TABLE awa_ingest.deferred_jobs IS 'Jobs that wait for their run_at';

CREATE TABLE awa_ingest.ready_entries (
    ready_slot       integer NOT NULL,
    ready_generation bigint NOT NULL,
    job_id           bigint NOT NULL,
    kind             text COLLATE "C" NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    args             jsonb NOT NULL,
    priority         smallint NOT NULL,
    attempt          smallint NOT NULL DEFAULT 0,
    run_lease        bigint NOT NULL DEFAULT 0,
    max_attempts     smallint NOT NULL DEFAULT 25,
    lane_seq         bigint NOT NULL,
    enqueue_shard    smallint NOT NULL DEFAULT 0,
    run_at           timestamptz NOT NULL,
    attempted_at     timestamptz,
    created_at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    unique_key       bytea,
    unique_states    text COLLATE "C",
    payload          jsonb
) PARTITION BY LIST (ready_slot);
COMMENT ON TABLE awa_ingest.ready_entries IS 'Jobs ready to run, by ring slot';

CREATE TABLE awa_ingest.ready_segments (
    ready_slot       integer NOT NULL,
    ready_generation bigint NOT NULL,
    queue            text COLLATE "C" NOT NULL,
    priority         smallint NOT NULL,
    enqueue_shard    smallint NOT NULL DEFAULT 0,
    first_lane_seq   bigint NOT NULL,
    next_lane_seq    bigint NOT NULL,
    first_run_at     timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CHECK (first_lane_seq < next_lane_seq)
) PARTITION BY LIST (ready_slot);
COMMENT ON TABLE awa_ingest.ready_segments IS 'Runs of consecutive lane positions with equal run_at; a job outside them is invisible';

-- The slot in a key is the same in every row of a partition. It is there, at the end, so that the parents have these indexes as well:
-- they are the replica identity (replication.sql).
DO $$
DECLARE
    slots CONSTANT integer := 16;
BEGIN
    FOR slot IN 0 .. slots - 1 LOOP
        EXECUTE format('CREATE TABLE awa_ingest.ready_entries_%1$s PARTITION OF awa_ingest.ready_entries FOR VALUES IN (%1$s)', slot);
        EXECUTE format('CREATE UNIQUE INDEX ready_entries_%1$s_lane
            ON awa_ingest.ready_entries_%1$s (queue, priority, enqueue_shard, lane_seq, ready_slot)', slot);
        EXECUTE format('CREATE INDEX ready_entries_%1$s_job ON awa_ingest.ready_entries_%1$s (job_id)', slot);
        EXECUTE format('CREATE TABLE awa_ingest.ready_segments_%1$s PARTITION OF awa_ingest.ready_segments FOR VALUES IN (%1$s)', slot);
        EXECUTE format('CREATE UNIQUE INDEX ready_segments_%1$s_lane
            ON awa_ingest.ready_segments_%1$s (queue, priority, enqueue_shard, first_lane_seq, ready_slot)', slot);
        PERFORM pg_catalog.pg_extension_config_dump(format('awa_ingest.ready_entries_%s', slot)::regclass, '');
        PERFORM pg_catalog.pg_extension_config_dump(format('awa_ingest.ready_segments_%s', slot)::regclass, '');
    END LOOP;
    CREATE UNIQUE INDEX ready_entries_lane ON awa_ingest.ready_entries (queue, priority, enqueue_shard, lane_seq, ready_slot);
    CREATE UNIQUE INDEX ready_segments_lane ON awa_ingest.ready_segments (queue, priority, enqueue_shard, first_lane_seq, ready_slot);
    INSERT INTO awa_ingest.queue_ring_state (current_slot, generation, slot_count) VALUES (0, 0, slots);
END
$$;

-- CREATE EXTENSION makes the ring row that a dump brings as well: the restored one wins.
CREATE FUNCTION awa_ingest.replace_ring_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM awa_ingest.queue_ring_state;
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION awa_ingest.replace_ring_state() FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.replace_ring_state() IS 'Lets a restored ring position replace the one of a new extension';
CREATE TRIGGER replace_ring_state BEFORE INSERT ON awa_ingest.queue_ring_state
    FOR EACH ROW EXECUTE FUNCTION awa_ingest.replace_ring_state();

DO $$
DECLARE
    relation regclass;
BEGIN
    -- One at a time: each call updates the extension's row.
    FOREACH relation IN ARRAY ARRAY[
        'awa_ingest.job_id_seq', 'awa_ingest.queue_meta', 'awa_ingest.queue_lanes', 'awa_ingest.queue_enqueue_heads',
        'awa_ingest.queue_claim_heads', 'awa_ingest.job_unique_claims', 'awa_ingest.deferred_jobs'
    ]::regclass[] LOOP
        PERFORM pg_catalog.pg_extension_config_dump(relation, '');
    END LOOP;
    -- As long as the ring has not turned, its row is what CREATE EXTENSION makes: it need not replace that, which takes the trigger above.
    PERFORM pg_catalog.pg_extension_config_dump('awa_ingest.queue_ring_state', 'WHERE generation <> 0 OR current_slot <> 0');
END
$$;

-- A head brings its sequence: new lanes get one, and one that pg_dump restored is tied to the head again, so that it goes with the
-- extension. (pg_dump keeps the sequences, but not whose they are, since the tables belong to the extension.)
CREATE FUNCTION awa_ingest.lane_sequence() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET default_tablespace = '' AS $$
DECLARE
    side CONSTANT text := TG_ARGV[0];
    owned_by CONSTANT text := format('OWNED BY awa_ingest.%I.seq_name', TG_TABLE_NAME);
BEGIN
    NEW.seq_name := format('queue_%s_seq_%s', side, md5(format('%s:%s:%s', NEW.queue, NEW.priority, NEW.enqueue_shard)));
    IF to_regclass(format('awa_ingest.%I', NEW.seq_name)) IS NULL THEN
        EXECUTE format('CREATE SEQUENCE awa_ingest.%I %s', NEW.seq_name, owned_by);
    ELSIF EXISTS (SELECT FROM pg_class AS sequence JOIN pg_class AS head USING (relowner)
                   WHERE sequence.oid = to_regclass(format('awa_ingest.%I', NEW.seq_name)) AND head.oid = TG_RELID) THEN
        EXECUTE format('ALTER SEQUENCE awa_ingest.%I %s', NEW.seq_name, owned_by);
    END IF;
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION awa_ingest.lane_sequence() FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.lane_sequence() IS 'Gives a lane head its sequence, and ties a restored one to it';
CREATE TRIGGER lane_sequence BEFORE INSERT OR UPDATE ON awa_ingest.queue_enqueue_heads
    FOR EACH ROW EXECUTE FUNCTION awa_ingest.lane_sequence('enqueue');
CREATE TRIGGER lane_sequence BEFORE INSERT OR UPDATE ON awa_ingest.queue_claim_heads
    FOR EACH ROW EXECUTE FUNCTION awa_ingest.lane_sequence('claim');
-- Also where triggers fire for replicas: without its sequences a lane is damaged.
ALTER TABLE awa_ingest.queue_enqueue_heads ENABLE ALWAYS TRIGGER lane_sequence;
ALTER TABLE awa_ingest.queue_claim_heads ENABLE ALWAYS TRIGGER lane_sequence;

-- The name is awa's, so that completing a lane is the same statement in both storages.
CREATE FUNCTION awa_ingest.ensure_lane_sequences(p_queue text, p_priority smallint, p_enqueue_shard smallint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE awa_ingest.queue_enqueue_heads SET seq_name = NULL
     WHERE queue = p_queue AND priority = p_priority AND enqueue_shard = p_enqueue_shard;
    UPDATE awa_ingest.queue_claim_heads SET seq_name = NULL
     WHERE queue = p_queue AND priority = p_priority AND enqueue_shard = p_enqueue_shard;
$$;
REVOKE ALL ON FUNCTION awa_ingest.ensure_lane_sequences(text, smallint, smallint) FROM PUBLIC;
COMMENT ON FUNCTION awa_ingest.ensure_lane_sequences(text, smallint, smallint) IS
    'Creates the sequences that an embedded lane lacks; called by awa_ingest.provision_lane';
