LOCK TABLE {storage}.queue_terminal_count_deltas{suffix} IN ACCESS EXCLUSIVE MODE
