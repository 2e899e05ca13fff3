-- The slot that ready rows go to now.
SELECT ring.current_slot, ring.generation FROM {storage}.queue_ring_state AS ring WHERE ring.singleton
