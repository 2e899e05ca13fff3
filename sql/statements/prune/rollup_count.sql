SELECT count(*) FROM {storage}.queue_terminal_count_deltas{suffix}
