-- awa.insert_job_compat as it stands: its owner, whether the caller is one, what it is, what is different from the function that this
-- extension knows, its definition and its name.
SELECT pg_get_userbyid(function.proowner)::text,
       pg_has_role(function.proowner, 'USAGE'),
       CASE WHEN body.is_ours THEN 'ours'
            WHEN language.lanname = 'plpgsql' AND md5(function.prosrc) = 'b3cb4855099a9b19ba02b4bcad4c079d' THEN 'awas'
            ELSE 'other'
       END,
       CASE WHEN named.name <> 'awa.insert_job_compat' THEN 'it is named ' || named.name
            WHEN regexp_replace(pg_get_function_arguments(function.oid), '[[:space:]]+', ' ', 'g') <> btrim(regexp_replace($text$
            p_kind text, p_queue text DEFAULT 'default'::text, p_args jsonb DEFAULT '{}'::jsonb, p_state awa.job_state
            DEFAULT 'available'::awa.job_state, p_priority smallint DEFAULT 2, p_max_attempts smallint DEFAULT 25, p_run_at
            timestamp with time zone DEFAULT NULL::timestamp with time zone, p_metadata jsonb DEFAULT '{}'::jsonb, p_tags
            text[] DEFAULT ARRAY[]::text[], p_unique_key bytea DEFAULT NULL::bytea, p_unique_states bit DEFAULT NULL::"bit",
            p_ordering_key bytea DEFAULT NULL::bytea$text$, '[[:space:]]+', ' ', 'g'))
                THEN 'its arguments are (' || pg_get_function_arguments(function.oid) || ')'
            WHEN function.proretset OR pg_get_function_result(function.oid) <> 'awa.jobs'
                THEN 'it returns ' || pg_get_function_result(function.oid)
            WHEN function.prosecdef THEN 'it is a security definer'
            WHEN (SELECT type.typtype FROM pg_type AS type WHERE type.oid = to_regtype('awa.job_state')) IS DISTINCT FROM 'e'
                THEN 'the type awa.job_state is no enum'
            WHEN (SELECT string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
                    FROM pg_attribute
                   WHERE attrelid = to_regclass('awa.jobs') AND attnum > 0 AND NOT attisdropped)
              IS DISTINCT FROM btrim(regexp_replace($text$
            id bigint, kind text, queue text, args jsonb, state awa.job_state, priority smallint, attempt smallint,
            max_attempts smallint, run_at timestamp with time zone, heartbeat_at timestamp with time zone, deadline_at
            timestamp with time zone, attempted_at timestamp with time zone, finalized_at timestamp with time zone,
            created_at timestamp with time zone, errors jsonb[], metadata jsonb, tags text[], unique_key bytea, unique_states
            bit(8), callback_id uuid, callback_timeout_at timestamp with time zone, callback_filter text,
            callback_on_complete text, callback_on_fail text, callback_transform text, run_lease bigint, progress jsonb$text$, '[[:space:]]+', ' ', 'g'))
                THEN 'the view awa.jobs has other columns'
       END,
       pg_get_functiondef(function.oid),
       named.name
  FROM pg_proc AS function
  JOIN pg_language AS language ON language.oid = function.prolang
 CROSS JOIN LATERAL (SELECT language.lanname = 'c' AND function.prosrc = 'awa_ingest_insert_job_compat' AS is_ours) AS body
 CROSS JOIN LATERAL (SELECT format('%I.%I', function.pronamespace::regnamespace::text, function.proname) AS name) AS named
 WHERE function.prokind = 'f' AND (function.pronamespace = 'awa'::regnamespace AND function.proname = 'insert_job_compat' OR body.is_ours)
 -- Others of the name, with other arguments, must not hide it; nor may it be hidden by another name.
 ORDER BY body.is_ours DESC,
          pg_get_function_identity_arguments(function.oid) LIKE 'p_kind text, p_queue text, p_args jsonb, %, p_ordering_key bytea' DESC,
          function.pronargs DESC
 LIMIT 1
