SELECT awa_ingest.analyze_relation($1::regclass)
