-- The first difference between the tables of an awa schema ($1 where jobs go, $2 whether that is queue storage) and those of schema
-- version 40, or no row.
-- A column that is missing or has another type, and a column that every writer would have to fill without our knowing how.
WITH expected (queue_storage, relation, columns) AS (VALUES
    (true, 'ready_entries', 'ready_slot integer, ready_generation bigint, job_id bigint, kind text, queue text, args jsonb,
        priority smallint, attempt smallint, run_lease bigint, max_attempts smallint, lane_seq bigint, enqueue_shard smallint,
        run_at timestamp with time zone, attempted_at timestamp with time zone, created_at timestamp with time zone,
        unique_key bytea, unique_states text, payload jsonb'),
    (true, 'ready_segments', 'ready_slot integer, ready_generation bigint, queue text, priority smallint, enqueue_shard smallint,
        first_lane_seq bigint, next_lane_seq bigint, first_run_at timestamp with time zone'),
    (true, 'deferred_jobs', 'job_id bigint, kind text, queue text, args jsonb, state awa.job_state, priority smallint,
        attempt smallint, run_lease bigint, max_attempts smallint, run_at timestamp with time zone,
        attempted_at timestamp with time zone, finalized_at timestamp with time zone, created_at timestamp with time zone,
        unique_key bytea, unique_states text, payload jsonb'),
    (true, 'queue_lanes', 'queue text, priority smallint'),
    (true, 'queue_enqueue_heads', 'queue text, priority smallint, enqueue_shard smallint, seq_name text'),
    (true, 'queue_claim_heads', 'queue text, priority smallint, enqueue_shard smallint, seq_name text'),
    (true, 'queue_ring_state', 'singleton boolean, current_slot integer, generation bigint, slot_count integer'),
    (false, 'jobs_hot', 'id bigint, kind text, queue text, args jsonb, state awa.job_state, priority smallint, max_attempts smallint,
        run_at timestamp with time zone, metadata jsonb, tags text[], unique_key bytea, unique_states bit(8)'),
    (false, 'scheduled_jobs', 'id bigint, kind text, queue text, args jsonb, state awa.job_state, priority smallint,
        max_attempts smallint, run_at timestamp with time zone, metadata jsonb, tags text[], unique_key bytea, unique_states bit(8)'),
    (NULL, 'job_unique_claims', 'unique_key bytea, job_id bigint'),
    (NULL, 'queue_meta', 'queue text, enqueue_shards smallint')
), listed AS (
    SELECT expected.relation,
           to_regclass(format('%I.%I', CASE WHEN queue_storage THEN $1 ELSE 'awa' END, relation)) AS oid,
           regexp_split_to_array(columns, ',[[:space:]]+') AS columns
      FROM expected
     WHERE queue_storage IS NULL OR queue_storage = $2
), actual AS (
    SELECT listed.relation, array_agg(format('%s %s', attribute.attname, format_type(attribute.atttypid, attribute.atttypmod))) AS columns,
           array_agg(attribute.attname::text) FILTER (WHERE attribute.attnotnull AND NOT attribute.atthasdef) AS required
      FROM listed
      JOIN pg_class AS class ON class.oid = listed.oid AND class.relkind IN ('r', 'p')
      JOIN pg_attribute AS attribute ON attribute.attrelid = listed.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
     GROUP BY listed.relation
)
SELECT CASE
           WHEN actual.relation IS NULL THEN format('table %s is missing', listed.relation)
           WHEN NOT actual.columns @> listed.columns THEN format('table %s lacks column %s', listed.relation,
               (SELECT string_agg(column_, ', ') FROM unnest(listed.columns) AS column_ WHERE column_ <> ALL (actual.columns)))
           ELSE format('table %s requires column %s', listed.relation,
               (SELECT string_agg(column_, ', ') FROM unnest(actual.required) AS column_
                 WHERE column_ <> ALL (SELECT split_part(known, ' ', 1) FROM unnest(listed.columns) AS known)))
       END
  FROM listed
  LEFT JOIN actual USING (relation)
 WHERE actual.relation IS NULL
    OR NOT actual.columns @> listed.columns
    OR NOT COALESCE(actual.required, '{}') <@ ARRAY(SELECT split_part(known, ' ', 1) FROM unnest(listed.columns) AS known)
 ORDER BY listed.relation
 LIMIT 1
