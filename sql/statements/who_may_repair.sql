-- Roles that can have awa_ingest.repair_lane_sequence() move sequence $1 of the schema with oid $2 forward.
SELECT role.rolname::text
  FROM pg_roles AS role
  -- By its catalog entry: the storage's owner, who may run this, need not have a right to the extension's schema.
 CROSS JOIN (SELECT function.oid
               FROM pg_proc AS function
               JOIN pg_namespace AS namespace ON namespace.oid = function.pronamespace
              WHERE namespace.nspname = 'awa_ingest' AND function.proname = 'repair_lane_sequence'
                AND function.proargtypes = '25 25'::oidvector) AS repair
 WHERE has_sequence_privilege(role.oid, $1, 'UPDATE')
   AND has_schema_privilege(role.oid, $2, 'USAGE') AND has_schema_privilege(role.oid, 'awa_ingest', 'USAGE')
   AND has_function_privilege(role.oid, repair.oid, 'EXECUTE')
   AND NOT EXISTS (
       SELECT FROM pg_class AS class
        WHERE class.relnamespace = $2 AND class.relkind IN ('r', 'p') AND class.relname = ANY (
              CASE WHEN (SELECT sequence.relname FROM pg_class AS sequence WHERE sequence.oid = $1) IN ('job_id_seq', 'jobs_id_seq')
                   THEN '{ready_entries, deferred_jobs, leases, lease_claims, lease_claim_closures, done_entries, dlq_entries, jobs_hot, scheduled_jobs}'
                   ELSE '{queue_enqueue_heads, queue_claim_heads, ready_segments}'::name[]
              END)
          AND NOT has_table_privilege(role.oid, class.oid, 'SELECT'))
 ORDER BY role.rolname
