-- Live counts of slot $1, whose rows are gone.
DELETE FROM {storage}.queue_terminal_live_counts AS live WHERE live.ready_slot = $1
