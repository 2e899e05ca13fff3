-- Keeps the ring from turning.
SELECT state.current_slot FROM {storage}.{ring}_ring_state AS state WHERE state.singleton FOR UPDATE
