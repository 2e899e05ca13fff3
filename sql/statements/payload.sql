-- A payload of metadata $1 and tags $2, for values that no client of awa sends but SQL can: metadata that is no object, tags with NULL.
SELECT CASE WHEN $1 IN ('{}', 'null') THEN '{}' ELSE jsonb_build_object('metadata', $1) END
    || CASE WHEN cardinality($2) > 0 THEN jsonb_build_object('tags', to_jsonb($2)) ELSE '{}' END
