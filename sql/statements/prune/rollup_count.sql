SELECT count(*) FROM {storage}.queue_terminal_count_deltas{suffix} AS delta WHERE delta.ready_generation = $1
