-- Tables of the storage in schema $1 whose statistics nobody else keeps: partitioned tables, which autovacuum never analyzes, and the
-- heads, small tables whose rows hardly change while everything is looked up by them.
SELECT class.oid::bigint, class.oid::regclass::text
  FROM unnest(ARRAY[
           'ready_entries', 'ready_segments', 'ready_claim_attempt_batches', 'ready_tombstones', 'done_entries',
           'receipt_completion_batches', 'receipt_completion_tombstones', 'queue_terminal_count_deltas', 'leases', 'lease_claims',
           'lease_claim_batches', 'lease_claim_closures', 'lease_claim_closure_batches', 'queue_enqueue_heads', 'queue_claim_heads'])
       WITH ORDINALITY AS known (name, place)
  JOIN pg_class AS class ON class.relname = known.name AND class.relnamespace = $1
 WHERE class.relkind = 'p' OR class.relkind = 'r' AND known.name LIKE '%heads'
 ORDER BY known.place
