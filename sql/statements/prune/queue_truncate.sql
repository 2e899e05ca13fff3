TRUNCATE {storage}.ready_entries{suffix}, {storage}.ready_claim_attempt_batches{suffix}, {storage}.done_entries{suffix},
    {storage}.ready_tombstones{suffix}, {storage}.ready_segments{suffix}, {storage}.receipt_completion_batches{suffix},
    {storage}.receipt_completion_tombstones{suffix}, {storage}.queue_terminal_count_deltas{suffix}
