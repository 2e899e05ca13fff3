-- What maintenance did on this server. Unlogged tables are published to no subscriber: two servers that replicate all tables would write
-- equal ids here. A crash or a promotion empties it.
CREATE UNLOGGED TABLE awa_ingest.maintenance_records (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at timestamptz NOT NULL,
    task       text COLLATE "C" NOT NULL,
    relation   text COLLATE "C",
    ring       text COLLATE "C",
    slot       integer,
    outcome    text COLLATE "C" NOT NULL,
    reason     text COLLATE "C",
    rows       bigint,
    duration   interval NOT NULL,
    sqlstate   text COLLATE "C",
    error      text,
    repeated   bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE awa_ingest.maintenance_records IS 'The rows of awa_ingest.maintenance_runs, which can be read on standbys, too';

CREATE FUNCTION awa_ingest.read_maintenance_runs() RETURNS SETOF awa_ingest.maintenance_records
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10000 SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A standby has no unlogged rows, and the server refuses to plan a query on such a table there.
    IF NOT pg_is_in_recovery() THEN
        RETURN QUERY SELECT record.* FROM awa_ingest.maintenance_records AS record;
    END IF;
END
$$;
COMMENT ON FUNCTION awa_ingest.read_maintenance_runs() IS 'The rows of awa_ingest.maintenance_runs, with the caller''s rights';

CREATE VIEW awa_ingest.maintenance_runs AS
SELECT id, started_at, task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error, repeated
  FROM awa_ingest.read_maintenance_runs();
COMMENT ON VIEW awa_ingest.maintenance_runs IS
    'What maintenance did on this server since it last crashed or was promoted: the newest awa_ingest.maintenance_history steps, those of workers and of run_maintenance()';
COMMENT ON COLUMN awa_ingest.maintenance_runs.rows IS
    'analyzed: rows that the planner assumes; pruned: failed jobs that were carried on; rolled: counts that were folded; healed: positions that the claim cursor went over';
COMMENT ON COLUMN awa_ingest.maintenance_runs.repeated IS
    'How many more times a worker found the same and had nothing to do; written when that ends';

CREATE FUNCTION awa_ingest.last_failed_run(OUT error text, OUT started_at timestamptz)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pg_is_in_recovery() AND has_table_privilege('awa_ingest.maintenance_records', 'SELECT') THEN
        SELECT record.error, record.started_at INTO error, started_at
          FROM awa_ingest.maintenance_records AS record
         WHERE record.outcome = 'failed'
         ORDER BY record.id DESC
         LIMIT 1;
    END IF;
END
$$;
COMMENT ON FUNCTION awa_ingest.last_failed_run() IS 'The newest error in awa_ingest.maintenance_runs, if the caller may read that';

CREATE FUNCTION awa_ingest.run_maintenance(
    INOUT task text,
    OUT relation text,
    OUT ring text,
    OUT slot integer,
    OUT outcome text,
    OUT reason text,
    OUT rows bigint,
    OUT duration interval,
    OUT sqlstate text,
    OUT error text
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'awa_ingest_run_maintenance' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.run_maintenance(text) IS
    'Runs a maintenance task now, statistics, prune or lanes, with the caller''s rights: a row a step, also recorded in maintenance_runs';

-- Runs as the extension's owner inside: whoever writes the head tables may have their tables analyzed.
CREATE FUNCTION awa_ingest.analyze_relation(relation regclass) RETURNS text
AS 'MODULE_PATHNAME', 'awa_ingest_analyze_relation' LANGUAGE C VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.analyze_relation(regclass) IS
    'Analyzes a partitioned table or head table of the storage in use: analyzed, or skipped_lock where others hold a lock on it';

CREATE FUNCTION awa_ingest.start_worker() RETURNS integer
AS 'MODULE_PATHNAME', 'awa_ingest_start_worker' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.start_worker() IS
    'Starts this database''s maintenance worker, until the server stops; returns its process, NULL where the launcher starts it after commit';

CREATE FUNCTION awa_ingest.stop_worker() RETURNS boolean
AS 'MODULE_PATHNAME', 'awa_ingest_stop_worker' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.stop_worker() IS
    'Ends this database''s maintenance worker until start_worker() is called or the server restarts; returns whether there was one';

CREATE FUNCTION awa_ingest.announce_worker() RETURNS void
AS 'MODULE_PATHNAME', 'awa_ingest_announce_worker' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.announce_worker() IS
    'Has the launcher look at this database after commit; for CREATE EXTENSION';

CREATE FUNCTION awa_ingest.ring_slots(
    OUT ring text,
    OUT slot integer,
    OUT generation bigint,
    OUT current boolean,
    OUT rows bigint,
    OUT prunable boolean,
    OUT reason text
) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'awa_ingest_rings' LANGUAGE C VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION awa_ingest.ring_slots() IS 'The rows of awa_ingest.rings';

CREATE VIEW awa_ingest.rings AS SELECT * FROM awa_ingest.ring_slots();
COMMENT ON VIEW awa_ingest.rings IS
    'Slots of the rings in use: rows by the server''s statistics, and whether a prune would empty them now, or why not';

-- Processes are told by locks that nothing else can take, and everybody can see (src/workers/locks.rs). Since when they run is for the
-- members of pg_read_all_stats.
CREATE VIEW awa_ingest.workers AS
SELECT database.datname AS database, lock.pid,
       CASE lock.objid WHEN 1 THEN 'launcher' WHEN 2 THEN 'maintenance' ELSE 'statistics' END AS role,
       activity.backend_start AS started_at,
       failure.error AS last_error,
       failure.started_at AS last_error_at
  FROM pg_catalog.pg_locks AS lock
  LEFT JOIN pg_catalog.pg_database AS database ON database.oid = lock.database
  LEFT JOIN pg_catalog.pg_stat_activity AS activity ON activity.pid = lock.pid
  LEFT JOIN LATERAL awa_ingest.last_failed_run() AS failure
    ON lock.objid > 1 AND database.datname = pg_catalog.current_database()
 WHERE lock.locktype = 'userlock' AND lock.classid = 6512 AND lock.granted;
COMMENT ON VIEW awa_ingest.workers IS
    'Background processes of awa_ingest on this server: in which database, since when, and the last error, where that is this database';

REVOKE ALL ON awa_ingest.maintenance_records, awa_ingest.maintenance_runs, awa_ingest.rings, awa_ingest.workers FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.read_maintenance_runs() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.last_failed_run() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.run_maintenance(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.analyze_relation(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.start_worker() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.stop_worker() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.announce_worker() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa_ingest.ring_slots() FROM PUBLIC;

SELECT awa_ingest.announce_worker();
