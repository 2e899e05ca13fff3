-- The active engine, the queue storage schema, and the version of awa's schema. What schema version 40's
-- awa.active_queue_storage_schema() says, without its two nested functions, which cost more than all other steps for one job.
-- Without its row the engine is the canonical one, as for awa; unless row security may hide it.
SELECT COALESCE(NULLIF(btrim(CASE WHEN transition.state IN ('mixed_transition', 'active')
                                  THEN COALESCE(transition.prepared_engine, transition.current_engine)
                                  ELSE transition.current_engine
                             END), ''), 'canonical'),
       COALESCE(NULLIF(transition.details ->> 'schema', ''),
                (SELECT backend.schema_name FROM awa.runtime_storage_backends AS backend WHERE backend.backend = 'queue_storage'),
                'awa'),
       (SELECT version.version FROM awa.schema_version AS version ORDER BY version.version DESC LIMIT 1),
       transition.singleton IS NULL
           AND (SELECT class.relrowsecurity FROM pg_class AS class WHERE class.oid = to_regclass('awa.storage_transition_state'))
  FROM (VALUES (true)) AS always (singleton)
  LEFT JOIN awa.storage_transition_state AS transition USING (singleton)
