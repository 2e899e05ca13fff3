-- What is wrong with the sequences of lanes: in schema $1, with all of them or the one named $2; $3 says whether it is the embedded
-- storage. The privileges wanted are those of lane_grants.sql. Where a lane has been in use, a new sequence must not begin below
-- positions that were handed out: workers would never come by there.
WITH head AS (
    SELECT 'enqueue' AS side, 'claim' AS other, head.queue, head.priority, head.enqueue_shard AS shard, head.seq_name
      FROM {storage}.queue_enqueue_heads AS head
    UNION ALL
    SELECT 'claim', 'enqueue', head.queue, head.priority, head.enqueue_shard, head.seq_name
      FROM {storage}.queue_claim_heads AS head
), named AS (
    SELECT head.*, format('queue_%s_seq_%s', head.side, hash.value) AS name, format('queue_%s_seq_%s', head.other, hash.value) AS other_name
      FROM head
     CROSS JOIN LATERAL (SELECT md5(format('%s:%s:%s', head.queue, head.priority, head.shard)) AS value) AS hash
), tables AS (
    SELECT kind.side, class.relname, class.relowner, class.relacl, class.relnamespace
      FROM (VALUES ('enqueue'), ('claim')) AS kind (side)
      JOIN pg_class AS class ON class.oid = to_regclass(format('%I.queue_%s_heads', $1, kind.side))
), wanted AS (
    SELECT tables.side, acl.grantee, role.rolname, bool_or(acl.privilege_type <> 'SELECT') AS writes
      FROM tables
     CROSS JOIN LATERAL aclexplode(tables.relacl) AS acl
      LEFT JOIN pg_roles AS role ON role.oid = acl.grantee
     WHERE acl.privilege_type IN ('SELECT', 'INSERT', 'UPDATE') AND acl.grantee <> tables.relowner
       AND (acl.grantee = 0 OR role.oid IS NOT NULL)
     GROUP BY tables.side, acl.grantee, role.rolname
), found AS (
    SELECT named.*, tables.relname AS head_table, tables.relowner AS head_owner, tables.relnamespace AS schema,
           class.oid, class.relkind, class.relowner AS owner, class.relacl AS acl
      FROM named
      JOIN tables USING (side)
      LEFT JOIN pg_class AS class ON class.relnamespace = tables.relnamespace AND class.relname = named.name
     WHERE $2 IS NULL OR named.name = $2
), checked AS (
    -- The old owner loses its rights with the ownership, and so does whoever has them from it alone.
    SELECT found.*, lacking.grants, lacking.words
      FROM found
      LEFT JOIN LATERAL (
          SELECT array_agg(format('GRANT %s ON SEQUENCE %I.%I TO %s', privileges.list, $1, found.name,
                                  CASE wanted.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(wanted.rolname) END)
                           ORDER BY wanted.grantee <> 0, wanted.rolname) AS grants,
                 string_agg(format('%s lacks %s', CASE wanted.grantee WHEN 0 THEN 'PUBLIC' ELSE format('"%s"', wanted.rolname) END,
                                   privileges.list), ', ' ORDER BY wanted.grantee <> 0, wanted.rolname)
                     FILTER (WHERE NOT privileges.has) AS words
            FROM wanted
           CROSS JOIN LATERAL (
               SELECT CASE WHEN wanted.writes THEN 'SELECT, USAGE, UPDATE' ELSE 'SELECT' END AS list,
                      direct.has,
                      CASE WHEN direct.has THEN true
                           WHEN wanted.grantee = 0 OR found.relkind IS DISTINCT FROM 'S' THEN false
                           ELSE has_sequence_privilege(wanted.grantee, found.oid, 'SELECT')
                               AND (NOT wanted.writes OR has_sequence_privilege(wanted.grantee, found.oid, 'USAGE')
                                   AND has_sequence_privilege(wanted.grantee, found.oid, 'UPDATE'))
                      END
                 FROM (SELECT CASE WHEN wanted.writes THEN ARRAY['SELECT', 'USAGE', 'UPDATE'] ELSE ARRAY['SELECT'] END
                                  <@ ARRAY(SELECT acl.privilege_type FROM aclexplode(found.acl) AS acl
                                            WHERE acl.grantee = wanted.grantee)) AS direct (has)
           ) AS privileges (list, direct, has)
           WHERE wanted.side = found.side
             AND CASE WHEN found.owner IS DISTINCT FROM found.head_owner THEN wanted.grantee = found.owner OR NOT privileges.direct
                      ELSE NOT privileges.has
                 END
      ) AS lacking ON found.oid IS NULL OR found.relkind = 'S'
), missing AS (
    SELECT checked.*, format('SELECT awa_ingest.provision_lane(%L, %L::smallint, %L::smallint)', queue, priority, shard) AS provision,
           CASE WHEN checked.relkind <> 'S' THEN 'occupied'
                WHEN named.is_other THEN 'renamed'
                WHEN checked.oid IS NOT NULL THEN 'unnamed'
                WHEN used.unknown THEN 'unknown'
                WHEN used.next IS NULL OR used.next <= 1 THEN 'new'
                ELSE checked.side
           END AS state,
           used.next
      FROM checked
     CROSS JOIN LATERAL (
         SELECT checked.seq_name IS DISTINCT FROM checked.name
                    AND EXISTS (SELECT FROM pg_class AS class
                                 WHERE class.relnamespace = checked.schema AND class.relname = checked.seq_name) AS is_other
     ) AS named
     CROSS JOIN LATERAL (
         SELECT other.oid IS NOT NULL AND other.position IS NULL AS unknown, GREATEST(other.position, ring.next) AS next
           FROM (SELECT max(segment.next_lane_seq) AS next
                   FROM {storage}.ready_segments AS segment
                  WHERE segment.queue = checked.queue AND segment.priority = checked.priority AND segment.enqueue_shard = checked.shard)
                AS ring
           LEFT JOIN (SELECT class.oid, position.next AS position
                        FROM pg_class AS class
                        LEFT JOIN awa_ingest_positions AS position ON position.sequence = class.oid
                       WHERE class.relnamespace = checked.schema AND class.relname = checked.other_name AND class.relkind = 'S')
                AS other ON true
     ) AS used
     WHERE checked.oid IS NULL OR checked.relkind <> 'S' OR checked.seq_name IS DISTINCT FROM checked.name
), problem AS (
    SELECT missing.queue, missing.priority, missing.shard, missing.side, missing.name, missing.schema, missing.owner, missing.head_owner,
           'missing' AS problem,
           CASE missing.state
               WHEN 'occupied' THEN 'something else has the name of the sequence'
               WHEN 'renamed' THEN format('%s names "%s"', missing.head_table, missing.seq_name)
               WHEN 'unnamed' THEN format('%s does not name the sequence', missing.head_table)
               WHEN 'unknown' THEN format('the sequence does not exist, and "%s", which says where it must begin, may not be read',
                                          missing.other_name)
               WHEN 'new' THEN 'the sequence does not exist'
               WHEN 'enqueue' THEN format('the sequence does not exist; positions below %s were handed out', missing.next)
               ELSE format('the sequence does not exist; positions below %s were handed out, and nothing says which were claimed',
                           missing.next)
           END AS detail,
           CASE WHEN missing.state IN ('unnamed', 'new') THEN ARRAY[missing.provision]
                WHEN missing.state = 'enqueue' THEN
                    ARRAY[format('CREATE SEQUENCE %I.%I AS bigint START WITH %s', $1, missing.name, missing.next),
                          format('ALTER SEQUENCE %I.%I OWNER TO %I', $1, missing.name, pg_get_userbyid(missing.head_owner))]
                        || CASE WHEN $3 THEN
                               ARRAY[format('ALTER SEQUENCE %1$I.%2$I OWNED BY %1$I.%3$I.seq_name', $1, missing.name, missing.head_table)]
                           END
                        || missing.grants
                        || CASE WHEN missing.seq_name IS DISTINCT FROM missing.name THEN ARRAY[missing.provision] END
                ELSE '{}'
           END AS statements,
           CASE WHEN missing.state IN ('unnamed', 'new') THEN 'provision'
                WHEN missing.state = 'enqueue' AND missing.seq_name IS DISTINCT FROM missing.name THEN 'create and provision'
                WHEN missing.state = 'enqueue' THEN 'create'
           END AS needs
      FROM missing
    UNION ALL
    SELECT checked.queue, checked.priority, checked.shard, checked.side, checked.name, checked.schema, checked.owner, checked.head_owner,
           'wrong_owner',
           format('its owner is "%s", and that of %s is "%s"', pg_get_userbyid(checked.owner), checked.head_table,
                  pg_get_userbyid(checked.head_owner)) || COALESCE('; ' || checked.words, ''),
           ARRAY[format('ALTER SEQUENCE %I.%I OWNER TO %I', $1, checked.name, pg_get_userbyid(checked.head_owner))]
               || CASE WHEN $3 THEN
                      ARRAY[format('ALTER SEQUENCE %1$I.%2$I OWNED BY %1$I.%3$I.seq_name', $1, checked.name, checked.head_table)]
                  END
               || checked.grants,
           'own'
      FROM checked
     WHERE checked.relkind = 'S' AND checked.seq_name = checked.name AND checked.owner <> checked.head_owner
    UNION ALL
    SELECT checked.queue, checked.priority, checked.shard, checked.side, checked.name, checked.schema, checked.owner, checked.head_owner,
           'missing_privilege', checked.words, checked.grants, 'grant'
      FROM checked
     WHERE checked.relkind = 'S' AND checked.seq_name = checked.name AND checked.owner = checked.head_owner AND checked.grants IS NOT NULL
), able AS (
    SELECT kind.needs, kind.owner, kind.head_owner,
           ARRAY(SELECT role.rolname::text
                   FROM pg_roles AS role
                  WHERE CASE
                            WHEN kind.needs IN ('provision', 'create and provision') THEN
                                has_schema_privilege(role.oid, 'awa_ingest', 'USAGE')
                                    AND has_function_privilege(role.oid, provision.oid, 'EXECUTE')
                            ELSE true
                        END
                    AND has_schema_privilege(role.oid, kind.schema, 'USAGE')
                    AND CASE
                            WHEN kind.needs = 'grant' THEN pg_has_role(role.oid, kind.owner, 'USAGE')
                            WHEN kind.needs = 'provision' OR role.rolsuper THEN true
                            -- An owner is chosen by who owns what is given and can become the new one, who may create there.
                            ELSE pg_has_role(role.oid, kind.head_owner, 'USAGE')
                                AND pg_has_role(role.oid, kind.head_owner,
                                                CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
                                AND has_schema_privilege(kind.head_owner, kind.schema, 'CREATE')
                                AND CASE WHEN kind.needs = 'own' THEN pg_has_role(role.oid, kind.owner, 'USAGE')
                                         ELSE has_schema_privilege(role.oid, kind.schema, 'CREATE')
                                    END
                        END
                  ORDER BY role.rolname) AS roles
      FROM (SELECT DISTINCT problem.needs, problem.owner, problem.head_owner, problem.schema
              FROM problem
             WHERE problem.needs IS NOT NULL) AS kind
      -- By its catalog entry: the storage's owner, who may run this, need not have a right to the extension's schema.
     CROSS JOIN (SELECT function.oid
                   FROM pg_proc AS function
                   JOIN pg_namespace AS namespace ON namespace.oid = function.pronamespace
                  WHERE namespace.nspname = 'awa_ingest' AND function.proname = 'provision_lane'
                    AND function.proargtypes = '25 21 21'::oidvector) AS provision
)
SELECT $1, problem.name, problem.problem,
       format('queue "%s", priority %s, shard %s: %s', problem.queue, problem.priority, problem.shard, problem.detail),
       COALESCE(able.roles, '{}'), problem.statements
  FROM problem
  LEFT JOIN able ON able.needs = problem.needs AND able.owner IS NOT DISTINCT FROM problem.owner AND able.head_owner = problem.head_owner
 ORDER BY problem.queue, problem.priority, problem.shard, problem.side DESC
