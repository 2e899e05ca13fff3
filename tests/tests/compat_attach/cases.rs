//! Calls that awa's function takes.

/// Queues whose lanes are split, and into how many.
pub const SHARDED: [(&str, i16); 2] = [("sharded", 4), ("ünsharded", 1)];

/// Argument lists, each of a call of its own. Every one is taken on queue storage and on the canonical engine.
pub const TAKEN: &[&str] = &[
    "'k'",
    "'k', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
    "'k', 'q', '{\"a\": 1}', 'available', 1::smallint, 3::smallint, date_trunc('day', now()) - interval '3 days 1.000001 s', '{\"m\": [1, null]}', '{a,b}', NULL, NULL, NULL",
    "p_tags => '{x}', p_kind => 'named', p_metadata => '{\"m\": {}}', p_queue => 'q'",
    // States and times.
    "'k', p_state => 'available', p_run_at => date_trunc('day', now()) - interval '20 days'",
    "'k', p_state => 'available', p_run_at => date_trunc('day', now()) + interval '20 days'",
    "'k', p_state => 'scheduled'",
    "'k', p_state => 'scheduled', p_run_at => '2041-01-01 00:00:00.000001+05'",
    "'k', p_state => 'scheduled', p_run_at => '262142-12-31 23:59:59.999999+00'",
    "'k', p_state => 'scheduled', p_run_at => '1999-12-31'",
    "'k', p_state => 'retryable'",
    "'k', p_state => 'retryable', p_run_at => '2041-01-01', p_queue => 'q', p_priority => 4::smallint",
    // Metadata and tags, of which only what is not empty is stored.
    "'k', p_metadata => '{\"m\": 1}'",
    "'k', p_metadata => '{\"m\": null, \"empty\": {}}', p_state => 'scheduled'",
    "'k', p_tags => '{one}'",
    "'k', p_tags => '{one}', p_metadata => '{\"m\": \"é🐘\"}', p_state => 'scheduled'",
    "'k', p_tags => ARRAY['', ' ', 'NULL', 'a,b', '\"', E'\\\\', E'\\n', 'é', 'one', 'one']",
    "'k', p_tags => array_fill('t'::text, ARRAY[20])",
    "'k', p_tags => '{}', p_metadata => '{}', p_args => '{}'",
    // Unique keys: with the bit of the state, and without.
    "'k', p_unique_key => '\\x01', p_unique_states => '11111111'",
    "'k', p_unique_key => '\\x02', p_unique_states => B'01000000'",
    "'k', p_unique_key => '\\x02', p_unique_states => B'10111111'",
    "'k', p_unique_key => '\\x02', p_unique_states => B'00000000'",
    "'k', p_unique_key => '\\x03', p_unique_states => B'10000000', p_state => 'scheduled', p_run_at => '2041-01-01'",
    "'k', p_unique_key => '\\x03', p_unique_states => B'01111111', p_state => 'scheduled', p_run_at => '2041-01-01'",
    "'k', p_unique_key => '\\x04', p_unique_states => B'00001000', p_state => 'retryable'",
    "'k', p_unique_key => '\\x04', p_unique_states => B'11110111', p_state => 'retryable'",
    "'k', p_unique_key => '\\x01'",
    "'k', p_unique_states => B'11111111'",
    "'k', p_unique_key => decode(repeat('00ff', 100), 'hex'), p_unique_states => B'11111111', p_queue => 'q', p_tags => '{u}'",
    // Ordering keys, where there are shards and where there are none.
    "'k', p_queue => 'sharded', p_ordering_key => ''",
    "'k', p_queue => 'sharded', p_ordering_key => '\\x00'",
    "'k', p_queue => 'sharded', p_ordering_key => '\\x01'",
    "'k', p_queue => 'sharded', p_ordering_key => '\\x02'",
    "'k', p_queue => 'sharded', p_ordering_key => '\\xff03', p_priority => 1::smallint",
    "'k', p_queue => 'sharded', p_ordering_key => decode(repeat('fe', 300), 'hex')",
    "'k', p_queue => 'sharded', p_ordering_key => 'customer 42', p_unique_key => '\\x05', p_unique_states => '11111111'",
    "'k', p_queue => 'sharded', p_ordering_key => '\\x00', p_state => 'scheduled'",
    "'k', p_queue => 'ünsharded', p_ordering_key => '\\x0102'",
    "'k', p_queue => 'q', p_ordering_key => '\\x0102'",
    // Names.
    "''",
    "'', ''",
    "repeat('k', 200)",
    "repeat('é', 200), 'odd \"queue\".with ''quotes'', ünïcode\\'",
    "'k', repeat('q', 200), p_state => 'scheduled'",
    "'k', repeat('🐘', 200), p_state => 'scheduled'",
    "'k', repeat('q', 59)",
    "'k', 'with#1'",
    // Arguments.
    "'k', p_args => 'null'",
    "'k', p_args => '[]'",
    "'k', p_args => '\"text\"'",
    "'k', p_args => '-12.50'",
    "'k', p_args => '{\"b\": {\"é\": [true, false, null, 1e3, 0.1, 12345678901234567890]}, \"a\": \"\\u2028\\t\\\\\"}'",
    "'k', p_args => to_jsonb(repeat('long ', 30000))",
    "'k', p_args => jsonb_build_object('random', (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1000) AS n))",
    // Limits.
    "'k', p_priority => 1::smallint, p_max_attempts => 1::smallint",
    "'k', p_priority => 3::smallint, p_max_attempts => 1000::smallint",
    "'k', p_priority => 4::smallint, p_max_attempts => 25::smallint, p_state => 'scheduled'",
];

/// Calls that awa's function takes although nobody should make them: its workers read back something else.
pub const ODD: &[&str] = &[
    "'k', p_ordering_key => decode(repeat('01', 5000), 'hex')",
    "'k', p_run_at => date_trunc('day', now()) + interval '10 days'",
    "'k', p_metadata => 'null'",
    "'k', p_metadata => '[1, 2]'",
    "'k', p_metadata => '\"text\"', p_state => 'scheduled'",
    "'k', p_tags => ARRAY['a', NULL, 'b']",
    "'k', p_tags => ARRAY[['a', 'b'], ['c', 'd']]",
    "'k', p_tags => '[5:6]={a,b}'",
];

/// Unique keys that no client of awa makes, but its function takes.
pub const UNUSUAL_KEYS: &[&str] = &[
    "'k', p_unique_key => '', p_unique_states => B'11111111'",
    "'k', p_unique_key => decode(repeat('00', 1500), 'hex'), p_unique_states => B'11111111'",
    "'k', p_unique_key => (SELECT decode(string_agg(md5(n::text), ''), 'hex') FROM generate_series(1, 160) AS n), p_unique_states => '11111111'",
    "'k', p_unique_key => decode(repeat('00', 5000), 'hex')",
];

/// Calls that awa's function takes and then fails on, again and again, with all jobs of the queue behind them; and what the replacement
/// says to them.
pub const STOPPING_AWA: &[(&str, &str)] = &[
    ("22008", "'k', p_run_at => 'infinity'"),
    ("22008", "'k', p_run_at => '-infinity'"),
    ("22008", "'k', p_state => 'scheduled', p_run_at => '-infinity'"),
    ("22008", "'k', p_state => 'scheduled', p_run_at => 'infinity'"),
    ("22008", "'k', p_state => 'retryable', p_run_at => '262143-01-01 00:00:00+00'"),
    ("22008", "'k', p_run_at => now() - interval '22 days 1 minute'"),
    ("22008", "'k', p_run_at => now() + interval '22 days 1 minute'"),
    ("22003", "'k', p_args => '1e400'"),
    ("54000", "'k', p_args => (repeat('[', 200) || repeat(']', 200))::jsonb"),
];
