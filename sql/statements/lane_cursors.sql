-- Lanes with both heads and both sequences in the storage's schema, whose oid is $1: the sequences' oids and names. A head that names
-- another sequence is no way to get at that.
SELECT claim.queue, claim.priority, claim.enqueue_shard, claims.oid::bigint, claims.relname::text, enqueues.oid::bigint, enqueues.relname::text
  FROM {storage}.queue_claim_heads AS claim
  JOIN {storage}.queue_enqueue_heads AS enqueue
    ON enqueue.queue = claim.queue AND enqueue.priority = claim.priority AND enqueue.enqueue_shard = claim.enqueue_shard
  JOIN pg_class AS claims ON claims.relnamespace = $1 AND claims.relname = claim.seq_name AND claims.relkind = 'S'
  JOIN pg_class AS enqueues ON enqueues.relnamespace = $1 AND enqueues.relname = enqueue.seq_name AND enqueues.relkind = 'S'
 CROSS JOIN LATERAL (SELECT md5(format('%s:%s:%s', claim.queue, claim.priority, claim.enqueue_shard)) AS value) AS hash
 WHERE claim.seq_name = 'queue_claim_seq_' || hash.value AND enqueue.seq_name = 'queue_enqueue_seq_' || hash.value
 ORDER BY claim.queue, claim.priority, claim.enqueue_shard
