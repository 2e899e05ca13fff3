SELECT extension.extowner::bigint, extension.extversion, role.rolsuper
  FROM pg_extension AS extension
  JOIN pg_roles AS role ON role.oid = extension.extowner
 WHERE extension.extname = 'awa_ingest'
