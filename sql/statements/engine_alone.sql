-- engine.sql for callers who may not read awa's version.
SELECT COALESCE(NULLIF(btrim(CASE WHEN transition.state IN ('mixed_transition', 'active')
                                  THEN COALESCE(transition.prepared_engine, transition.current_engine)
                                  ELSE transition.current_engine
                             END), ''), 'canonical'),
       COALESCE(NULLIF(transition.details ->> 'schema', ''),
                (SELECT backend.schema_name FROM awa.runtime_storage_backends AS backend WHERE backend.backend = 'queue_storage'),
                'awa'),
       NULL::integer,
       transition.singleton IS NULL
           AND (SELECT class.relrowsecurity FROM pg_class AS class WHERE class.oid = to_regclass('awa.storage_transition_state'))
  FROM (VALUES (true)) AS always (singleton)
  LEFT JOIN awa.storage_transition_state AS transition USING (singleton)
