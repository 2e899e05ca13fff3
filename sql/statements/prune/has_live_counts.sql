SELECT EXISTS (SELECT FROM {storage}.queue_terminal_live_counts AS live WHERE live.ready_slot = $1)
