-- The oldest slot of a ring that was in use and is not the current one. Slots come into use one after the other.
SELECT (state.current_slot - state.back + state.slot_count) % state.slot_count, state.generation - state.back
  FROM (SELECT *, LEAST(generation + 1, slot_count)::integer - 1 AS back FROM {storage}.{ring}_ring_state WHERE singleton) AS state
 WHERE state.back > 0
