-- Slots of a ring with their generations, and the rows that the server's statistics count in their partitions of tables $1 in schema $2.
SELECT slot.number, NULLIF(GREATEST(slot.generation, -1), -1), slot.number = state.current_slot,
       (SELECT sum(pg_stat_get_live_tuples(class.oid))::bigint
          FROM unnest($1::text[]) AS name
          JOIN pg_class AS class ON class.relname = format('%s_%s', name, slot.number) AND class.relnamespace = $2)
  FROM {storage}.{ring}_ring_state AS state
 CROSS JOIN LATERAL (
     SELECT number, state.generation - (state.current_slot - number + state.slot_count) % state.slot_count AS generation
       FROM generate_series(0, state.slot_count - 1) AS number) AS slot
 WHERE state.singleton
 ORDER BY slot.number
