-- Keeps others from slot $1.
SELECT slot.slot FROM {storage}.{ring}_ring_slots AS slot WHERE slot.slot = $1 FOR UPDATE
