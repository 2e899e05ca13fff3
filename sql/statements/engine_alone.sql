-- engine.sql for callers who may not read awa's version.
SELECT COALESCE(NULLIF(btrim(CASE WHEN transition.state IN ('mixed_transition', 'active')
                                  THEN COALESCE(transition.prepared_engine, transition.current_engine)
                                  ELSE transition.current_engine
                             END), ''), 'canonical'),
       COALESCE(NULLIF(transition.details ->> 'schema', ''),
                (SELECT backend.schema_name FROM awa.runtime_storage_backends AS backend WHERE backend.backend = 'queue_storage'),
                'awa')
  FROM awa.storage_transition_state AS transition
 WHERE transition.singleton
