//! Nothing that a user can SET changes what is locked, hashed, compared or stored: every way in, once as usual and once under odd
//! values of all settings that could matter (docs/design.md, "Settings").

use std::collections::BTreeSet;

use awa_ingest_tests::copy::{Format, Row, copy_csv, copy_rows, csv_with_header};
use awa_ingest_tests::{Db, Storage, Stored, Template, assert_same_rows, backend_pid, rows, wait_until_blocked, within};
use chrono::DateTime;
use serde_json::{Value, json};
use tokio_postgres::Client;

/// Odd values, for users and superusers. A server that does not know a setting goes without.
const ODD: [(&str, &str); 56] = [
    ("quote_all_identifiers", "on"),
    ("standard_conforming_strings", "off"),
    ("escape_string_warning", "on"),
    ("backslash_quote", "off"),
    ("transform_null_equals", "on"),
    ("array_nulls", "off"),
    ("search_path", "pg_temp, information_schema"),
    ("DateStyle", "SQL, DMY"),
    ("IntervalStyle", "sql_standard"),
    ("TimeZone", "Pacific/Chatham"),
    ("timezone_abbreviations", "Australia"),
    ("bytea_output", "escape"),
    ("extra_float_digits", "-15"),
    ("xmlbinary", "hex"),
    ("xmloption", "document"),
    ("lc_messages", "C"),
    ("lc_monetary", "C"),
    ("lc_numeric", "C"),
    ("lc_time", "C"),
    ("client_encoding", "LATIN1"),
    ("client_min_messages", "error"),
    ("row_security", "off"),
    ("check_function_bodies", "off"),
    ("default_text_search_config", "simple"),
    ("session_replication_role", "replica"),
    ("lo_compat_privileges", "on"),
    ("gin_fuzzy_search_limit", "1"),
    ("synchronize_seqscans", "off"),
    ("constraint_exclusion", "on"),
    ("from_collapse_limit", "1"),
    ("join_collapse_limit", "1"),
    ("geqo_threshold", "2"),
    ("cursor_tuple_fraction", "0.0001"),
    ("plan_cache_mode", "force_custom_plan"),
    ("enable_seqscan", "off"),
    ("enable_indexscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_nestloop", "off"),
    ("enable_sort", "off"),
    ("enable_hashagg", "off"),
    ("enable_material", "off"),
    ("enable_memoize", "off"),
    ("enable_partition_pruning", "off"),
    ("force_parallel_mode", "regress"),
    ("debug_parallel_query", "regress"),
    ("parallel_setup_cost", "0"),
    ("parallel_tuple_cost", "0"),
    ("min_parallel_table_scan_size", "0"),
    ("jit", "on"),
    ("jit_above_cost", "0"),
    ("stats_fetch_consistency", "snapshot"),
    ("default_statistics_target", "1"),
    ("synchronous_commit", "off"),
    ("work_mem", "64kB"),
    ("default_transaction_deferrable", "on"),
];

/// Gives a session all of them, and a tablespace of its own for what it creates.
async fn set_odd(db: &Db, client: &Client) {
    let tablespace = format!("odd_{}", db.name());
    let admin = db.connect().await;
    admin.batch_execute("SET allow_in_place_tablespaces = on").await.expect("a superuser");
    // It may be there already: nobody else has the database's name.
    drop(admin.batch_execute(&format!("CREATE TABLESPACE {tablespace} LOCATION ''")).await);
    let known = client.query("SELECT lower(name) FROM pg_settings", &[]).await.expect("settings");
    let known: BTreeSet<String> = known.into_iter().map(|row| row.get(0)).collect();
    for (name, value) in ODD.iter().copied().chain([("default_tablespace", &*tablespace)]) {
        if known.contains(&name.to_lowercase()) {
            client.query_one("SELECT pg_catalog.set_config($1, $2, false)", &[&name, &value]).await.expect(name);
        }
    }
}

/// Rows with something of everything; `run_at` with its zone.
fn copied(queue: &str) -> Vec<Row> {
    let fields = [
        json!({"n": [1, 2.5, 1e300, -0.1], "s": "a 'b' \"c\" \\d \\x41"}),
        json!({"at": "2040-02-03", "null": null}),
        json!([1e-7, true]),
    ];
    let rows = fields.into_iter().enumerate().map(|(n, args)| Row {
        queue: Some(queue.to_owned()),
        run_at: (n == 1).then(|| DateTime::from_timestamp_micros(2_211_876_000_123_456).expect("a time")),
        state: (n == 1).then(|| "scheduled".to_owned()),
        tags: (n == 2).then(|| vec!["a \\b".to_owned(), "null".to_owned()]),
        metadata: (n == 2).then(|| json!({"m": 0.1})),
        unique_key: (n == 0).then(|| [b"\0\xff\\", queue.as_bytes()].concat()),
        ..Row::new("k", args)
    });
    rows.collect()
}

/// The functions, without a string that standard_conforming_strings concerns.
const CALLS: [&str; 5] = [
    "SELECT awa.enqueue('k', '{\"n\": 1.5}', 'call', run_at => '2040-02-03 10:00:00+00', tags => ARRAY['a', 'b'],
        uniqueness => '{\"by_args\": true}', ordering_key => 'key')",
    "SELECT awa.enqueue('k', '{\"n\": [2, 1e10]}', 'select', 1::smallint, metadata => '{\"m\": 1}')",
    "SELECT * FROM awa.enqueue_batch('[{\"kind\": \"k\", \"queue\": \"batch\", \"unique\": {\"by_queue\": true, \"by_period\": 86400}},
        {\"kind\": \"k\", \"queue\": \"batch\", \"run_at\": \"2040-02-03T10:00:00Z\"}, {\"kind\": \"k\", \"queue\": \"batch\"}]')",
    "SELECT * FROM awa.enqueue_columns(ARRAY['k', 'l'], queue => ARRAY['columns'], args => ARRAY['{}', '[1.0]']::jsonb[],
        tags => ARRAY['[\"t\"]']::jsonb[], unique_key => ARRAY[decode('00ff', 'hex'), NULL])",
    "INSERT INTO awa.ingest (kind, queue, args, run_at, tags) VALUES ('k', 'insert', '{}', NULL, ARRAY['x']),
        ('k', 'insert', '{\"f\": 0.30000000000000004}', '2040-02-03 10:00:00+00', NULL) RETURNING job_id",
];

/// What awa's clients call, and its relatives.
const CALLS_OF_AWA: [&str; 3] = [
    "SELECT (awa.insert_job_compat('k', 'compat', '{\"a\": 1}', p_tags => ARRAY['t'], p_unique_key => decode('0011', 'hex'),
        p_unique_states => B'11111000')).id FROM generate_series(1, 1)",
    "SELECT id FROM awa_ingest.insert_jobs_compat_batch(ARRAY['k', 'k'], ARRAY['compat_batch'], ARRAY['[1]', '{}']::jsonb[],
        run_at => ARRAY[NULL, '2040-02-03 10:00:00+00']::timestamptz[], state => ARRAY['available', 'scheduled'])",
    "SELECT id FROM awa_ingest.insert_many_skip_unique_conflicts('[{\"kind\": \"k\", \"queue\": \"many\", \"unique\": true},
        {\"kind\": \"k\", \"queue\": \"many\", \"unique\": true}]')",
];

/// Every way in.
async fn enqueue(client: &Client, storage: Storage) {
    let run = async |sql: &str| drop(client.query(sql, &[]).await.unwrap_or_else(|error| panic!("{storage:?}, {sql}: {error:?}")));
    for sql in CALLS {
        run(sql).await;
    }
    for (table, format) in [("ingest", Format::Text), ("ingest", Format::Csv), ("ingest_skip_conflicts", Format::Binary)] {
        let rows = copied(&format!("copy {format:?}"));
        let copied = copy_rows(client, &format!("awa.{table}"), format, &rows).await;
        assert_eq!(copied.unwrap_or_else(|error| panic!("{storage:?}, {format:?}: {error:?}")), 3);
        let told = client.query("SELECT * FROM awa.last_ingest()", &[]).await.expect("last_ingest");
        assert_eq!(told.len(), 3, "{storage:?}, {format:?}");
        run("SELECT * FROM awa.last_ingest_summary()").await;
    }
    let csv = csv_with_header(&copied("csv"));
    client.query("SELECT * FROM awa.enqueue_csv($1::bytea)", &[&csv]).await.expect("enqueue_csv");
    run("SELECT awa_ingest.provision_lane('provisioned', 3::smallint, 7::smallint)").await;
    if storage == Storage::Attached {
        for sql in CALLS_OF_AWA {
            run(sql).await;
        }
    }
}

/// What looks, and what maintains, under odd settings: nothing is wrong.
async fn assert_nothing_is_wrong(client: &Client, storage: Storage) {
    let status = rows(client, "(SELECT ready, problem, insert_job_compat FROM awa_ingest.status())", &[]).await.remove(0);
    let function = if storage == Storage::Attached { json!("replaced") } else { Value::Null };
    assert_eq!(status, json!({"ready": true, "problem": null, "insert_job_compat": function}), "{storage:?}");
    assert_eq!(rows(client, "awa_ingest.lane_sequence_problems()", &[]).await, Vec::<Value>::new(), "{storage:?}");
    let lanes = rows(client, "(SELECT sum(waiting) AS waiting FROM awa_ingest.lanes)", &[]).await.remove(0);
    assert!(lanes["waiting"].as_i64().is_some_and(|waiting| waiting > 10), "{storage:?}: {lanes}");
    assert!(!rows(client, "awa_ingest.rings", &[]).await.is_empty(), "{storage:?}");
    for task in ["statistics", "prune"] {
        let runs = rows(client, &format!("awa_ingest.run_maintenance('{task}')"), &[]).await;
        assert!(runs.iter().all(|run| run["sqlstate"].is_null()), "{storage:?}, {task}: {runs:?}");
    }
    let named = "SELECT array_agg(seq_name) FROM {s}.queue_enqueue_heads".replace("{s}", storage.schema());
    let names: Vec<String> = client.query_one(&named, &[]).await.expect(&named).get(0);
    for name in names {
        let repaired = client.query_one("SELECT awa_ingest.repair_lane_sequence($1, $2)", &[&storage.schema(), &name]).await;
        assert_eq!(repaired.expect(&name).get::<_, String>(0), "nothing_to_do", "{storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_settings_store_and_compare_the_same() {
    for storage in Storage::BOTH {
        let mut stored = Vec::new();
        for odd in [false, true] {
            let db = storage.db().await;
            let (client, observer) = (db.connect().await, db.connect().await);
            if odd {
                set_odd(&db, &client).await;
            }
            if storage == Storage::Attached {
                client.batch_execute("SELECT awa_ingest.attach()").await.expect("attach");
            }
            enqueue(&client, storage).await;
            assert_nothing_is_wrong(&client, storage).await;
            stored.push((Stored::read(&observer, storage).await, recorded(&observer).await));
        }
        let [(plain, recorded), (odd, oddly)] = <[_; 2]>::try_from(stored).expect("two");
        plain.assert_same(&odd, &format!("{storage:?}"));
        assert_same_rows("maintenance_runs", &recorded, &oddly);
    }
}

/// awa's older engine, where triggers take the keys, and do nothing where the session says that it replicates.
#[tokio::test(flavor = "multi_thread")]
async fn odd_settings_store_the_same_in_the_canonical_engine() {
    let mut stored = Vec::new();
    for odd in [false, true] {
        let db = Db::of(Template::AwaCanonical).await;
        let (client, observer) = (db.connect().await, db.connect().await);
        observer.batch_execute("CREATE EXTENSION awa_ingest; SELECT awa_ingest.attach()").await.expect("attach");
        if odd {
            set_odd(&db, &client).await;
        }
        for sql in CALLS.iter().chain(&CALLS_OF_AWA) {
            client.query(*sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        }
        copy_rows(&client, "awa.ingest", Format::Text, &copied("copy")).await.expect("COPY");
        let times = ["run_at", "created_at", "touched_at"];
        let mut tables = Vec::new();
        for table in ["jobs_hot", "scheduled_jobs", "job_unique_claims", "admin_dirty_queue_marks"] {
            tables.push(rows(&observer, &format!("awa.{table}"), &times).await);
        }
        stored.push(tables);
    }
    for (plain, odd) in stored[0].iter().zip(&stored[1]) {
        assert_same_rows("canonical", plain, odd);
    }
    assert_eq!(stored[0][2].len(), 4, "keys");
}

/// Lanes are made with the rights of the storage's owner, who has none on a producer's tablespace.
#[tokio::test(flavor = "multi_thread")]
async fn a_producers_tablespace_is_not_the_storages() {
    let (db, _owner) = Db::awa_of_a_role().await;
    let (role, tablespace) = (db.role("producer").await, format!("own_{}", db.name()));
    let admin = db.connect().await;
    for sql in [
        "SET allow_in_place_tablespaces = on",
        &format!("CREATE TABLESPACE {tablespace} OWNER {role} LOCATION ''"),
        &format!("ALTER ROLE {role} SET default_tablespace = {tablespace}"),
        &format!("SELECT awa_ingest.grant_producer('{role}')"),
    ] {
        admin.batch_execute(sql).await.expect(sql);
    }
    let producer = db.connect_as(&role).await;
    producer.batch_execute("SELECT awa.enqueue('k', queue => 'new')").await.expect("a new lane");
}

/// Names in the records of maintenance.
async fn recorded(observer: &Client) -> Vec<Value> {
    rows(observer, "(SELECT DISTINCT task, relation, ring FROM awa_ingest.maintenance_runs)", &[]).await
}

/// What attach() keeps and detach() gives back is text.
#[tokio::test(flavor = "multi_thread")]
async fn odd_settings_restore_awas_function_as_it_was() {
    let mut kept = Vec::new();
    for odd in [false, true] {
        let db = Db::awa().await;
        let (client, observer) = (db.connect().await, db.connect().await);
        if odd {
            set_odd(&db, &client).await;
        }
        let function = "(SELECT pg_get_functiondef('awa.insert_job_compat'::regproc) AS text)";
        let before = rows(&observer, function, &[]).await;
        client.batch_execute("SELECT awa_ingest.attach()").await.expect("attach");
        kept.push(rows(&observer, "awa_ingest.originals", &["saved_at"]).await);
        client.batch_execute("SELECT awa_ingest.detach()").await.expect("detach");
        assert_same_rows("awa's function", &before, &rows(&observer, function, &[]).await);
    }
    assert_same_rows("what attach() keeps", &kept[0], &kept[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_settings_adopt_the_same() {
    let mut stored = Vec::new();
    for odd in [false, true] {
        let db = Db::embedded().await;
        let (client, observer) = (db.connect().await, db.connect().await);
        enqueue(&observer, Storage::Embedded).await;
        db.migrate_awa().await;
        observer.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.expect("queue storage");
        if odd {
            set_odd(&db, &client).await;
        }
        client.batch_execute("SELECT awa_ingest.adopt()").await.expect("adopt");
        // The times of the first call and of this one are minutes apart at most.
        stored.push(Stored::read_by_job(&observer, Storage::Attached).await);
    }
    stored[0].assert_same(&stored[1], "adopt");
}

/// The advisory locks that backend `pid` holds.
async fn advisory_locks(observer: &Client, pid: i32) -> BTreeSet<i64> {
    let sql = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
               WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = $1";
    observer.query(sql, &[&pid]).await.expect(sql).into_iter().map(|row| row.get(0)).collect()
}

/// A lane's lock has the same number, whether the lane is new or not, and whoever asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn odd_settings_lock_the_same() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (plain, odd, observer) = (db.connect().await, db.connect().await, db.connect().await);
        set_odd(&db, &odd).await;
        let mut ways = vec![
            "SELECT awa.enqueue('k', queue => 'lane')",
            "SELECT * FROM awa.enqueue_batch('[{\"kind\": \"k\", \"queue\": \"lane\"}, {\"kind\": \"k\", \"queue\": \"lane\"}]')",
            "INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'lane')",
            "SELECT awa_ingest.provision_lane('lane', 2::smallint, 0::smallint)",
        ];
        if storage == Storage::Attached {
            plain.batch_execute("SELECT awa_ingest.attach()").await.expect("attach");
            ways.push("SELECT awa.insert_job_compat('k', 'lane')");
        }
        for is_new in [true, false] {
            for way in &ways {
                let mut held = Vec::new();
                for client in [&plain, &odd] {
                    let pid = backend_pid(client).await;
                    client.batch_execute(&format!("BEGIN; {way}")).await.unwrap_or_else(|error| panic!("{way}: {error:?}"));
                    held.push(advisory_locks(&observer, pid).await);
                    client.batch_execute("ROLLBACK").await.expect("ROLLBACK");
                }
                assert!(!held[0].is_empty() || way.contains("provision"), "{storage:?}, {way}");
                assert_eq!(held[0], held[1], "{storage:?}, new: {is_new}, {way}");
            }
            plain.batch_execute(ways[0]).await.expect("the lane");
        }
        let sql = format!(
            "SELECT hashtextextended('{}.' || quote_ident(seq_name), 0) FROM {} WHERE queue = 'lane'",
            storage.schema(),
            storage.table("queue_enqueue_heads")
        );
        let protocol: i64 = observer.query_one(&sql, &[]).await.expect(&sql).get(0);
        let pid = backend_pid(&odd).await;
        odd.batch_execute(&format!("BEGIN; {}", ways[0])).await.expect("enqueue");
        assert_eq!(advisory_locks(&observer, pid).await, BTreeSet::from([protocol]), "{storage:?}");
    }
}

/// A producer whose PGOPTIONS, role or database has the setting on waits for one that has it off, and the reverse: else a later position
/// becomes visible first, the claim cursor passes an earlier one, and its job is never worked.
#[tokio::test(flavor = "multi_thread")]
async fn quote_all_identifiers_does_not_part_producers() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        let role = db.role("producer").await;
        let set = format!(
            "GRANT ALL ON SCHEMA public TO {role}; SELECT awa_ingest.grant_producer('{role}');
             ALTER ROLE {role} IN DATABASE {} SET quote_all_identifiers = on",
            db.name()
        );
        observer.batch_execute(&set).await.expect(&set);
        observer.batch_execute("SELECT awa.enqueue('k', queue => 'lane')").await.expect("the lane");
        let quoting = db.connect_as(&role).await;
        let on: String = quoting.query_one("SHOW quote_all_identifiers", &[]).await.expect("SHOW").get(0);
        assert_eq!(on, "on");
        let plain = db.connect().await;
        for (first, second) in [(&plain, &quoting), (&quoting, &plain)] {
            first.batch_execute("BEGIN; SELECT awa.enqueue('k', queue => 'lane')").await.expect("the first");
            let pid = backend_pid(second).await;
            let waiting = second.batch_execute("SELECT awa.enqueue('k', queue => 'lane')");
            let (done, ()) = tokio::join!(within("the second", waiting), async {
                wait_until_blocked(&observer, pid).await;
                first.batch_execute("COMMIT").await.expect("COMMIT");
            });
            done.expect("the second");
        }
    }
}

/// What is ambiguous in a time means what it means for any `timestamptz` of the session, in job objects too; what is not is the same
/// for everybody.
#[tokio::test(flavor = "multi_thread")]
async fn times_are_read_as_the_session_reads_them() {
    let client = Db::embedded().await.connect().await;
    client.batch_execute("SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Pacific/Chatham'").await.expect("SET");
    let times = ["02/03/2040 10:00", "2040-03-02 10:00", "2040-03-02T10:00:00Z", "2040-03-02 10:00+05:30"];
    for time in times {
        let jobs = json!([{"kind": time, "queue": "json", "run_at": time}]);
        client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&jobs]).await.expect("enqueue_batch");
        let csv = format!("kind,queue,run_at\n{time},csv,{time}\n");
        client.query("SELECT * FROM awa.enqueue_csv($1::text)", &[&csv]).await.expect("enqueue_csv");
        copy_csv(&client, "awa.ingest", "kind, queue, run_at", &format!("{time},copy,{time}\n")).await.expect("COPY");
    }
    let odd = "(SELECT queue, kind, run_at FROM awa_ingest.deferred_jobs WHERE run_at <> kind::timestamptz)";
    assert_eq!(rows(&client, odd, &[]).await, Vec::<Value>::new());
    assert_eq!(rows(&client, "awa_ingest.deferred_jobs", &[]).await.len(), 3 * times.len());
}
