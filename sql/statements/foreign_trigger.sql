-- A trigger on one of the tables $1 whose function belongs neither to role $2 nor to a superuser: TRIGGER on a table can be granted.
SELECT format('Trigger %s on table %s runs function %s of role "%s".', trigger.tgname, trigger.tgrelid::regclass, function.oid::regprocedure,
              role.rolname)
  FROM pg_trigger AS trigger
  JOIN pg_proc AS function ON function.oid = trigger.tgfoid
  JOIN pg_roles AS role ON role.oid = function.proowner
 WHERE trigger.tgrelid = ANY ($1) AND NOT trigger.tgisinternal AND function.proowner <> $2 AND NOT role.rolsuper
 LIMIT 1
