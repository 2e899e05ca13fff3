DELETE FROM awa_ingest.ready_segments
