-- The oldest slot of the queue ring that was in use and is not the current one.
SELECT slot.slot, slot.generation
  FROM {storage}.queue_ring_slots AS slot
  JOIN {storage}.queue_ring_state AS state ON state.singleton AND state.current_slot <> slot.slot
 WHERE slot.generation >= 0
 ORDER BY slot.generation, slot.slot
 LIMIT 1
