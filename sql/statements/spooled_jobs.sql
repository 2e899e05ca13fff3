-- The jobs of the spool as awa.jobs shows them, in input order. $1 is when they were written, $2 the time of those that wake nobody.
SELECT spool.job_id, spool.kind, spool.queue, spool.args, spool.state::awa.job_state, spool.priority, 0::smallint, spool.max_attempts,
       COALESCE(spool.run_at, CASE WHEN spool.state <> 'available' OR octet_length(spool.queue) < 60 THEN $1 ELSE $2 END), NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, $1, '{}'::jsonb[],
       COALESCE(spool.payload -> 'metadata', '{}'), ARRAY(SELECT jsonb_array_elements_text(spool.payload -> 'tags')),
       spool.unique_key, spool.unique_states::bit(8), NULL::uuid, NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::text,
       0::bigint, NULL::jsonb
  FROM awa_ingest_spool AS spool
