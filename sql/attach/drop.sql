-- One by one, since DROP … IF EXISTS tells about each that does not.
DO $$
DECLARE
    made text;
BEGIN
    FOREACH made IN ARRAY ARRAY[
        'awa_ingest.insert_jobs_compat_batch(text[], text[], jsonb[], text[], smallint[], smallint[], timestamptz[], jsonb[], jsonb[], bytea[], text[], bytea[], boolean)',
        'awa_ingest.insert_many_skip_unique_conflicts(jsonb)',
        'awa_ingest.last_ingest_jobs()'
    ] LOOP
        IF to_regprocedure(made) IS NOT NULL THEN
            EXECUTE 'DROP FUNCTION ' || made;
        END IF;
    END LOOP;
END
$$;
