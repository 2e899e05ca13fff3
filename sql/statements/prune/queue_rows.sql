-- Whether the slot has anything to prune.
SELECT EXISTS (SELECT FROM {storage}.ready_entries{suffix})
    OR EXISTS (SELECT FROM {storage}.ready_claim_attempt_batches{suffix})
    OR EXISTS (SELECT FROM {storage}.done_entries{suffix})
    OR EXISTS (SELECT FROM {storage}.ready_tombstones{suffix})
    OR EXISTS (SELECT FROM {storage}.ready_segments{suffix})
    OR EXISTS (SELECT FROM {storage}.receipt_completion_batches{suffix})
    OR EXISTS (SELECT FROM {storage}.receipt_completion_tombstones{suffix})
    OR EXISTS (SELECT FROM {storage}.queue_terminal_count_deltas{suffix})
