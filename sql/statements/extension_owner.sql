SELECT extension.extowner::bigint FROM pg_extension AS extension WHERE extension.extname = 'awa_ingest'
