-- Whether the caller may write what a lane consists of.
SELECT has_table_privilege('{storage}.queue_lanes', 'INSERT')
   AND has_table_privilege('{storage}.queue_enqueue_heads', 'INSERT')
   AND has_table_privilege('{storage}.queue_claim_heads', 'INSERT')
