-- Whether slot $1 is still in generation $2, and not the current one.
SELECT EXISTS (
    SELECT FROM {storage}.queue_ring_slots AS slot
      JOIN {storage}.queue_ring_state AS state ON state.singleton AND state.current_slot <> slot.slot
     WHERE slot.slot = $1 AND slot.generation = $2)
