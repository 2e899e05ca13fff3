-- One discard at a time, since two could cut the same segment, and none beside adopt(), which locks this table first. Producers go on.
LOCK TABLE ONLY awa_ingest.ready_entries IN SHARE UPDATE EXCLUSIVE MODE
