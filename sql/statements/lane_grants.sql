-- GRANTs that give the lane's sequences the privileges of the head tables they back ($4 is the storage schema): who may write the
-- head may use the sequence, who may read it may read the sequence. Only sequences with the lane's own names: a head can be made to name another.
SELECT format('GRANT %s ON SEQUENCE %I.%I TO %s',
              CASE WHEN bool_or(acl.privilege_type <> 'SELECT') THEN 'SELECT, USAGE, UPDATE' ELSE 'SELECT' END,
              $4, lane.seq_name,
              CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END)
  FROM (SELECT to_regclass(format('%I.queue_enqueue_heads', $4)) AS head, 'enqueue' AS side, head.seq_name
          FROM {storage}.queue_enqueue_heads AS head
         WHERE head.queue = $1 AND head.priority = $2 AND head.enqueue_shard = $3
        UNION ALL
        SELECT to_regclass(format('%I.queue_claim_heads', $4)), 'claim', head.seq_name
          FROM {storage}.queue_claim_heads AS head
         WHERE head.queue = $1 AND head.priority = $2 AND head.enqueue_shard = $3) AS lane
  JOIN pg_class AS class ON class.oid = lane.head
 CROSS JOIN LATERAL aclexplode(class.relacl) AS acl
 WHERE lane.seq_name = format('queue_%s_seq_%s', lane.side, md5(format('%s:%s:%s', $1, $2, $3)))
   AND acl.privilege_type IN ('SELECT', 'INSERT', 'UPDATE') AND acl.grantee <> class.relowner
 GROUP BY lane.seq_name, acl.grantee
