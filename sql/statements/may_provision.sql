-- Whether the caller may use this extension's own way to make lanes. The schema first: without its USAGE even asking is an error.
SELECT CASE WHEN has_schema_privilege('awa_ingest', 'USAGE')
            THEN has_function_privilege('awa_ingest.provision_lane(text, smallint, smallint)', 'EXECUTE')
            ELSE false
       END
