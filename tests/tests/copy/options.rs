//! Foreign tables of the user's own: their options, their columns, and what cannot be done with them.

use awa_ingest_tests::copy::{copy_csv, copy_in, last_summary};
use awa_ingest_tests::{Db, Storage, assert_nothing_stored, assert_same_rows, failure, rows, stored_kinds};
use serde_json::{Value, json};
use tokio_postgres::Client;

fn options(options: &str) -> String {
    format!("CREATE FOREIGN TABLE orders (kind text, args jsonb) SERVER awa_ingest OPTIONS ({options})")
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Options that are refused: SQLSTATE and constraint are those of the value in a job.
fn bad_options() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let many_tags = format!("[{}]", vec!["\"t\""; 21].join(","));
    vec![
        ("kind", String::new(), "23514", "kind_length"),
        ("kind", "ü".repeat(201), "23514", "kind_length"),
        ("queue", "q".repeat(201), "23514", "queue_name_length"),
        ("priority", "0".into(), "23514", "priority_in_range"),
        ("priority", "5".into(), "23514", "priority_in_range"),
        ("priority", "high".into(), "22P02", ""),
        ("priority", String::new(), "22P02", ""),
        ("max_attempts", "0".into(), "23514", "max_attempts_range"),
        ("max_attempts", "1001".into(), "23514", "max_attempts_range"),
        ("max_attempts", "1.5".into(), "22P02", ""),
        ("on_conflict", "ignore".into(), "22023", ""),
        ("on_conflict", "SKIP".into(), "22023", ""),
        ("on_conflict", String::new(), "22023", ""),
        ("uniqueness", "{\"by_kind\": true}".into(), "22023", ""),
        ("uniqueness", "{\"states\": [\"done\"]}".into(), "22023", ""),
        ("uniqueness", "[]".into(), "22023", ""),
        ("uniqueness", "yes".into(), "22P02", ""),
        ("tags", many_tags, "23514", "tags_count"),
        ("tags", "[\"a\", 1]".into(), "22023", ""),
        ("tags", "{a,NULL}".into(), "22023", ""),
        ("tags", "{a".into(), "22P02", ""),
        ("tags", "[\"a\"".into(), "22P02", ""),
        ("batch_size", "0".into(), "22023", ""),
        ("batch_size", "-1".into(), "22023", ""),
        ("batch_size", "many".into(), "22023", ""),
        ("no_such_option", "1".into(), "HV00D", ""),
        ("Kind", "k".into(), "HV00D", ""),
        ("args", "{}".into(), "HV00D", ""),
        ("state", "available".into(), "HV00D", ""),
        ("run_at", "now".into(), "HV00D", ""),
        ("metadata", "{}".into(), "HV00D", ""),
        ("table_name", "t".into(), "HV00D", ""),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_options_are_refused_when_they_are_set() {
    let client = Db::embedded().await.connect().await;
    for (name, value, sqlstate, constraint) in bad_options() {
        let create = options(&format!("\"{name}\" {}", quoted(&value)));
        let refused = failure(client.batch_execute(&create).await);
        assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), (sqlstate, constraint), "{create}: {refused:?}");

        client.batch_execute("CREATE FOREIGN TABLE t (kind text) SERVER awa_ingest").await.unwrap();
        let alter = format!("ALTER FOREIGN TABLE t OPTIONS (ADD \"{name}\" {})", quoted(&value));
        let refused = failure(client.batch_execute(&alter).await);
        assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), (sqlstate, constraint), "{alter}: {refused:?}");
        client.batch_execute("INSERT INTO t VALUES ('unchanged'); DROP FOREIGN TABLE t").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_options_are_checked_too() {
    let client = Db::embedded().await.connect().await;
    client.batch_execute(&options("priority '1', tags '{a}', kind 'k'")).await.unwrap();
    for (alter, sqlstate) in [
        ("SET priority '9'", "23514"),
        ("SET tags '[1]'", "22023"),
        ("DROP queue", "42704"),
        ("ADD priority '2'", "42710"),
        ("DROP priority, ADD queues 'q'", "HV00D"),
    ] {
        let alter = format!("ALTER FOREIGN TABLE orders OPTIONS ({alter})");
        assert_eq!(failure(client.batch_execute(&alter).await).sqlstate, sqlstate, "{alter}");
    }
    client.batch_execute("ALTER FOREIGN TABLE orders OPTIONS (SET priority '4', DROP tags, ADD queue 'q')").await.unwrap();
    client.batch_execute("INSERT INTO orders DEFAULT VALUES").await.unwrap();
    let stored = "(SELECT kind, queue, priority, payload FROM awa_ingest.ready_entries)";
    let expected = [json!({"kind": "k", "queue": "q", "priority": 4, "payload": null})];
    assert_eq!(rows(&client, stored, &[]).await, expected);
}

/// Only tables have options.
#[tokio::test(flavor = "multi_thread")]
async fn options_elsewhere_are_unknown() {
    let client = Db::embedded().await.connect().await;
    for statement in [
        "CREATE SERVER s FOREIGN DATA WRAPPER awa_ingest OPTIONS (queue 'q')",
        "ALTER SERVER awa_ingest OPTIONS (ADD queue 'q')",
        "ALTER FOREIGN DATA WRAPPER awa_ingest OPTIONS (ADD queue 'q')",
        "CREATE USER MAPPING FOR CURRENT_USER SERVER awa_ingest OPTIONS (queue 'q')",
        "CREATE FOREIGN TABLE t (kind text OPTIONS (queue 'q')) SERVER awa_ingest",
    ] {
        assert_eq!(failure(client.batch_execute(statement).await).sqlstate, "HV00D", "{statement}");
    }
    // Another server of the same wrapper is as good, and needs no user mapping.
    client
        .batch_execute("CREATE SERVER s FOREIGN DATA WRAPPER awa_ingest; CREATE FOREIGN TABLE t (kind text) SERVER s")
        .await
        .unwrap();
    client.batch_execute("INSERT INTO t VALUES ('k')").await.unwrap();
    assert_eq!(stored_kinds(&client, Storage::Embedded).await, ["k"]);
}

async fn stored(client: &Client, storage: Storage, columns: &str) -> Vec<Value> {
    rows(client, &format!("(SELECT {columns} FROM {})", storage.table("ready_entries")), &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_defaults_that_columns_override() {
    let create = r#"CREATE FOREIGN TABLE orders (kind text, queue varchar, args jsonb, priority integer, max_attempts bigint, tags jsonb,
            uniqueness jsonb)
        SERVER awa_ingest OPTIONS (kind 'order', queue 'orders', priority '4', max_attempts '7', tags '["a", "b\"c"]',
            uniqueness '{"by_queue": true}', on_conflict 'skip', batch_size '50')"#;
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(create).await.unwrap();
        let csv = concat!(
            "__AWA_NULL__,__AWA_NULL__,1,__AWA_NULL__,__AWA_NULL__,__AWA_NULL__,__AWA_NULL__\n",
            "own,mine,2,1,1000,\"[\"\"x\"\"]\",false\n",
            "__AWA_NULL__,__AWA_NULL__,3,__AWA_NULL__,__AWA_NULL__,[],null\n",
            "__AWA_NULL__,__AWA_NULL__,1,__AWA_NULL__,__AWA_NULL__,__AWA_NULL__,__AWA_NULL__\n",
            "__AWA_NULL__,__AWA_NULL__,1,__AWA_NULL__,__AWA_NULL__,__AWA_NULL__,\"{\"\"by_args\"\": true}\"\n",
        );
        let columns = "kind, queue, args, priority, max_attempts, tags, uniqueness";
        assert_eq!(copy_csv(&client, "orders", columns, csv).await.expect("COPY"), 5);
        let summary = last_summary(&client).await.expect("a COPY");
        assert_eq!((summary.enqueued, summary.skipped), (4, 1), "the fourth job is the first again, {storage:?}");

        let found =
            stored(&client, storage, "kind, queue, args, priority, max_attempts, payload, unique_key IS NOT NULL AS keyed").await;
        let order = |args: i32, tags: Value, keyed: bool| json!({"kind": "order", "queue": "orders", "args": args, "priority": 4, "max_attempts": 7, "payload": tags, "keyed": keyed});
        let tags = json!({"tags": ["a", "b\"c"]});
        let own = json!({"kind": "own", "queue": "mine", "args": 2, "priority": 1, "max_attempts": 1000, "payload": {"tags": ["x"]}, "keyed": false});
        // JSON null is no value, as NULL is none.
        let expected = [order(1, tags.clone(), true), own, order(3, Value::Null, true), order(1, tags, true)];
        assert_same_rows(&format!("{storage:?}"), &expected, &found);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_uniqueness_can_be_switched_off() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE FOREIGN TABLE orders (args jsonb, uniqueness jsonb, unique_key bytea, unique_states text)
                SERVER awa_ingest OPTIONS (kind 'order', uniqueness 'true')",
            )
            .await
            .unwrap();
        client.batch_execute("INSERT INTO orders VALUES ('1', NULL), ('1', 'false'), ('1', 'false')").await.expect("one key");
        let taken = failure(client.batch_execute("INSERT INTO orders (args) VALUES ('1')").await);
        assert_eq!((taken.sqlstate.as_str(), taken.constraint.as_str()), ("23505", "idx_awa_jobs_unique"));
        // A key that a row brings takes the place of the default, too.
        client.batch_execute("INSERT INTO orders VALUES ('1', NULL, '\\x01', '11111111')").await.expect("a key of its own");
        let both = failure(client.batch_execute("INSERT INTO orders VALUES ('1', 'true', '\\x02', '11111111')").await);
        assert_eq!(both.sqlstate, "22023", "{both:?}");
        assert_eq!(stored_kinds(&client, storage).await.len(), 4, "{storage:?}");
        assert_eq!(rows(&client, &storage.table("job_unique_claims"), &[]).await.len(), 2);
    }
}

/// The shortest way in: a file with a JSON document a line.
#[tokio::test(flavor = "multi_thread")]
async fn one_column_of_raw_json() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute("CREATE FOREIGN TABLE events (args jsonb) SERVER awa_ingest OPTIONS (kind 'event', queue 'events')")
            .await
            .unwrap();
        let documents =
            [json!({"a": 1, "text": "tab\there \\ \"quoted\"\n"}), json!([1, null]), json!("x"), json!(null), json!(1.5)];
        // One byte that is in no JSON text is the quote of a format that then quotes nothing.
        let lines: String = documents.iter().map(|document| format!("{document}\n")).collect();
        let copy = "COPY events FROM STDIN WITH (FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01')";
        assert_eq!(copy_in(&client, copy, lines).await.expect(copy), 5);
        let expected: Vec<Value> =
            documents.iter().map(|document| json!({"kind": "event", "queue": "events", "args": document})).collect();
        assert_same_rows(&format!("{storage:?}"), &expected, &stored(&client, storage, "kind, queue, args").await);
        let refused = failure(copy_in(&client, copy, "{}\n{\"a\"\n").await);
        assert_eq!(refused.sqlstate, "22P02", "{refused:?}");
        assert!(refused.context.contains("COPY events, line 2, column args"), "{refused:?}");
    }
}

/// Columns that no job has, or of another type: said when the table is made, and where that was not seen, before the first row.
#[tokio::test(flavor = "multi_thread")]
async fn odd_columns_are_refused() {
    let cases = [
        ("kind text, payload jsonb", "42703"),
        ("kind text, \"Queue\" text", "42703"),
        ("kind text, ord bigint", "42703"),
        ("kind integer", "42804"),
        ("kind text, args json", "42804"),
        ("kind text, args text", "42804"),
        ("kind text, priority numeric", "42804"),
        ("kind text, run_at timestamp", "42804"),
        ("kind text, run_at date", "42804"),
        ("kind text, tags varchar[]", "42804"),
        ("kind text, tags text", "42804"),
        ("kind text, unique_key text", "42804"),
        ("kind text, unique_states bit(8)", "42804"),
        ("kind text, ordering_key text", "42804"),
        ("kind text, job_id integer", "42804"),
        ("kind char(3)", "42804"),
    ];
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        for (columns, sqlstate) in cases {
            let create = format!("CREATE FOREIGN TABLE odd ({columns}) SERVER awa_ingest");
            assert_eq!(failure(client.batch_execute(&create).await).sqlstate, sqlstate, "{columns}");
            let unseen = format!(
                "ALTER EVENT TRIGGER awa_ingest_check_foreign_tables DISABLE; {create}; ALTER EVENT TRIGGER awa_ingest_check_foreign_tables ENABLE"
            );
            client.batch_execute(&unseen).await.expect(columns);
            for insert in ["INSERT INTO odd DEFAULT VALUES", "INSERT INTO odd (kind) SELECT NULL WHERE false"] {
                let refused = failure(client.batch_execute(insert).await);
                assert_eq!(refused.sqlstate, sqlstate, "{columns}, {insert}: {refused:?}");
            }
            // A COPY that is refused at its beginning is the last of its connection.
            let copied = copy_csv(&db.connect().await, "odd", "kind", "").await;
            assert_eq!(failure(copied).sqlstate, sqlstate, "{columns}");
            client.batch_execute("DROP FOREIGN TABLE odd").await.unwrap();
        }
        assert_nothing_stored(&client, storage, "odd columns").await;
    }
}

/// Every type that a column may have.
#[tokio::test(flavor = "multi_thread")]
async fn types_of_columns() {
    let cases = [
        (
            "kind varchar, queue varchar(50), state varchar, unique_key bytea, unique_states varchar",
            "'k', 'q', 'available', '\\x01', '11111111'",
        ),
        ("kind text, priority smallint, max_attempts smallint", "'k', 1, 2"),
        ("kind text, priority integer, max_attempts integer", "'k', 1, 2"),
        ("kind text, priority bigint, max_attempts bigint", "'k', 1, 2"),
        ("kind text, tags text[]", "'k', '{a,b}'"),
        ("kind text, tags jsonb", "'k', '[\"a\", \"b\"]'"),
        ("kind text, run_at timestamptz, metadata jsonb, ordering_key bytea, uniqueness jsonb, job_id bigint", "'k', '2020-01-01'"),
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for (columns, values) in cases {
            let create = format!("CREATE FOREIGN TABLE t ({columns}) SERVER awa_ingest");
            client.batch_execute(&format!("{create}; INSERT INTO t VALUES ({values}); DROP FOREIGN TABLE t")).await.expect(columns);
        }
        for (column, value) in [("priority integer", "70000"), ("priority bigint", "9000000000"), ("max_attempts bigint", "-1")] {
            client.batch_execute(&format!("CREATE FOREIGN TABLE t (kind text, {column}) SERVER awa_ingest")).await.unwrap();
            let refused = failure(client.batch_execute(&format!("INSERT INTO t VALUES ('k', {value})")).await);
            assert_eq!((refused.sqlstate.as_str(), refused.ordinal()), ("23514", Some(1)), "{column}: {refused:?}");
            client.batch_execute("DROP FOREIGN TABLE t").await.unwrap();
        }
        assert_eq!(stored_kinds(&client, storage).await, vec!["k"; cases.len()], "{storage:?}");
    }
}

const WRITE_ONLY: [&str; 12] = [
    "SELECT * FROM {t}",
    "TABLE {t}",
    "SELECT count(*) FROM {t}",
    "SELECT 1 FROM {t} LIMIT 0",
    "INSERT INTO {t} (kind) SELECT kind FROM {t}",
    "UPDATE {t} SET kind = 'x'",
    "UPDATE {t} SET kind = 'x' WHERE kind = 'k' RETURNING *",
    "DELETE FROM {t}",
    "COPY (SELECT * FROM {t}) TO STDOUT",
    "EXPLAIN SELECT * FROM {t}",
    "SELECT * FROM {t} FOR UPDATE",
    "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM {t}",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_write_only() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(&options("kind 'k'")).await.unwrap();
        for table in ["awa.ingest", "awa.ingest_skip_conflicts", "orders"] {
            for statement in WRITE_ONLY {
                let statement = statement.replace("{t}", table);
                let refused = failure(client.batch_execute(&statement).await);
                assert_eq!(refused.sqlstate, "0A000", "{statement}: {refused:?}");
            }
            assert_eq!(failure(client.batch_execute(&format!("TRUNCATE {table}")).await).sqlstate, "0A000");
            // The server does not copy out of foreign tables, and has a hint of its own.
            assert_eq!(failure(client.batch_execute(&format!("COPY {table} TO STDOUT")).await).sqlstate, "42809");
        }
        // ANALYZE of the whole database passes over them.
        client.batch_execute("ANALYZE").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_id_is_not_written() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for insert in [
            "INSERT INTO awa.ingest (kind, job_id) VALUES ('k', NULL), ('k', 1)",
            "INSERT INTO awa.ingest_skip_conflicts (kind, job_id) VALUES ('k', NULL), ('k', 0) RETURNING job_id",
        ] {
            let refused = failure(client.query(insert, &[]).await);
            let found = (refused.sqlstate.as_str(), refused.column.as_str(), refused.ordinal());
            assert_eq!(found, ("428C9", "job_id", Some(2)), "{insert}: {refused:?}");
        }
        let refused = failure(copy_csv(&client, "awa.ingest", "job_id, kind", "__AWA_NULL__,k\n7,k\n").await);
        assert_eq!(
            (refused.sqlstate.as_str(), refused.column.as_str(), refused.ordinal()),
            ("428C9", "job_id", Some(2)),
            "{refused:?}"
        );
        assert!(refused.context.starts_with("COPY ingest, line 2"), "{refused:?}");
        assert_nothing_stored(&client, storage, "job_id").await;
        client.batch_execute("INSERT INTO awa.ingest (kind, job_id) VALUES ('k', NULL)").await.expect("NULL is no id");
    }
}
