-- Slots with counts to fold, oldest first: not the current one.
SELECT slot.slot, slot.generation
  FROM {storage}.queue_ring_slots AS slot
  JOIN {storage}.queue_ring_state AS state ON state.singleton AND state.current_slot <> slot.slot
 WHERE slot.generation >= 0
   AND EXISTS (SELECT FROM {storage}.queue_terminal_count_deltas AS delta
                WHERE delta.ready_slot = slot.slot AND delta.ready_generation = slot.generation)
 ORDER BY slot.generation, slot.slot
