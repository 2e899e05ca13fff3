-- The tables and sequences that a writer of jobs may hold: first the foreign tables, which a COPY holds before it writes, then the extension's own
-- in the order in which writers lock them (docs/design.md, "Locks"), then the rest.
WITH member AS (
    SELECT class.oid, regexp_replace(class.relname, CASE WHEN class.relispartition THEN '_[0-9]+$' ELSE '$^' END, '_') AS name
      FROM pg_depend AS depend
      JOIN pg_class AS class ON class.oid = depend.objid AND class.relkind IN ('r', 'p', 'S')
      JOIN pg_extension AS extension ON extension.oid = depend.refobjid AND extension.extname = 'awa_ingest'
     WHERE depend.classid = 'pg_class'::regclass AND depend.refclassid = 'pg_extension'::regclass AND depend.deptype = 'e'
), listed AS (
    SELECT foreign_table.ftrelid AS oid, 'foreign' AS name
      FROM pg_foreign_table AS foreign_table
      JOIN pg_foreign_server AS server ON server.oid = foreign_table.ftserver
      JOIN pg_foreign_data_wrapper AS wrapper ON wrapper.oid = server.srvfdw AND wrapper.fdwname = 'awa_ingest'
    UNION ALL
    SELECT member.oid, member.name FROM member
    UNION ALL
    SELECT class.oid, 'lane'
      FROM member
      JOIN pg_depend AS depend ON depend.refobjid = member.oid AND depend.refclassid = 'pg_class'::regclass
                              AND depend.classid = 'pg_class'::regclass AND depend.deptype = 'a'
      JOIN pg_class AS class ON class.oid = depend.objid AND class.relkind = 'S'
     WHERE member.name IN ('queue_enqueue_heads', 'queue_claim_heads')
)
SELECT listed.oid
  FROM listed
 ORDER BY array_position(ARRAY['foreign', 'queue_meta', 'queue_lanes', 'job_id_seq', 'job_unique_claims', 'queue_enqueue_heads',
                               'queue_claim_heads', 'lane', 'queue_ring_state', 'ready_entries_', 'ready_entries', 'ready_segments_',
                               'ready_segments', 'deferred_jobs'], listed.name), listed.oid
