//! Unusual but good input: NULL and empty arguments, arrays of one, long names, times in every notation, deep and big JSON.

use awa_ingest_tests::{Db, Storage, failure, jobs, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

async fn count(client: &Client, sql: &str) -> usize {
    client.query(sql, &[]).await.expect(sql).len()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_do_is_no_error() {
    let nothing = [
        "SELECT * FROM awa.enqueue_batch('[]')",
        "SELECT * FROM awa.enqueue_batch(NULL)",
        "SELECT * FROM awa.enqueue_batch('[]', 'skip')",
        "SELECT * FROM awa.enqueue_batch('[]', NULL)",
        "SELECT * FROM awa.enqueue_columns('{}')",
        "SELECT * FROM awa.enqueue_columns(NULL)",
        "SELECT * FROM awa.enqueue_columns('{}', args => '{}', queue => '{q}', priority => '{}')",
        "SELECT * FROM awa.enqueue_columns('{k}', args => '{}')",
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for call in nothing {
            assert_eq!(count(&client, call).await, 0, "{call}");
        }
        assert!(rows(&client, &storage.table("queue_lanes"), &[]).await.is_empty());
    }
}

/// What is stored for a job that leaves everything to the defaults, times and ids aside.
const OF_A_JOB: [&str; 5] = ["job_id", "lane_seq", "run_at", "created_at", "ready_generation"];

#[tokio::test(flavor = "multi_thread")]
async fn null_is_the_default() {
    let calls = [
        "SELECT awa.enqueue('k')",
        "SELECT awa.enqueue('k', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "SELECT awa.enqueue('k', tags => '{}', metadata => 'null', uniqueness => 'null')",
        "SELECT awa.enqueue('k', uniqueness => 'false')",
        r#"SELECT awa.enqueue_batch('[{"kind": "k"}]')"#,
        r#"SELECT awa.enqueue_batch('[{"kind": "k", "queue": null, "state": null, "priority": null, "max_attempts": null, "run_at": null,
            "metadata": null, "tags": null, "unique": null, "unique_key": null, "unique_states": null, "ordering_key": null}]', NULL)"#,
        r#"SELECT awa.enqueue_batch('[{"kind": "k", "args": {}, "metadata": {}, "tags": [], "unique": false, "state": "available"}]')"#,
        "SELECT awa.enqueue_columns('{k}')",
        "SELECT awa.enqueue_columns('{k}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', NULL)",
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for call in calls {
            client.batch_execute(call).await.expect(call);
        }
        let stored = rows(&client, &storage.table("ready_entries"), &OF_A_JOB).await;
        let expected = json!({
            "ready_slot": 0, "kind": "k", "queue": "default", "args": {}, "priority": 2, "attempt": 0, "run_lease": 0,
            "max_attempts": 25, "enqueue_shard": 0, "attempted_at": null, "unique_key": null, "unique_states": null, "payload": null
        });
        assert_eq!(stored, vec![expected; calls.len()], "{storage:?}");
    }
}

/// JSON null is a value that args may have.
#[tokio::test(flavor = "multi_thread")]
async fn any_json_is_args() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for args in [
            json!(null),
            json!(true),
            json!(0),
            json!(-1.5),
            json!(""),
            json!("text"),
            json!([]),
            json!([[], {}]),
            json!({"": null}),
        ] {
            let batch = json!([{"kind": "k", "args": args}]);
            client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await.unwrap();
            client.execute("SELECT awa.enqueue('k', $1)", &[&args]).await.unwrap();
            client.execute("SELECT awa.enqueue_columns('{k}', ARRAY[$1::jsonb])", &[&args]).await.unwrap();
            let stored = format!("SELECT FROM {} WHERE args = $1", storage.table("ready_entries"));
            assert_eq!(client.query(&stored, &[&args]).await.unwrap().len(), 3, "{args}, {storage:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_of_one_apply_to_all_jobs() {
    let call = r#"SELECT * FROM awa.enqueue_columns(kind => '{a}', args => ARRAY['1', '2', '3']::jsonb[], queue => '{q}', priority => '{1}',
        max_attempts => '{7}', run_at => '{2030-01-01 00:00+00}', metadata => ARRAY['{"m": 1}']::jsonb[], tags => ARRAY['["t"]']::jsonb[],
        unique_key => ARRAY['\x01', '\x02', NULL]::bytea[], unique_states => ARRAY['10000000', '10000000', NULL], ordering_key => ARRAY['\x01']::bytea[])"#;
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        assert_eq!(count(&client, call).await, 3);
        let stored = format!(
            "(SELECT kind, args, queue, priority, max_attempts, run_at = '2030-01-01 00:00+00' AS due, payload, unique_key IS NOT NULL AS keyed FROM {})",
            storage.table("deferred_jobs")
        );
        let job = |args: i32, keyed: bool| {
            json!({"kind": "a", "args": args, "queue": "q", "priority": 1, "max_attempts": 7, "due": true, "keyed": keyed,
                   "payload": {"metadata": {"m": 1}, "tags": ["t"]}})
        };
        let expected = [job(1, true), job(2, true), job(3, false)];
        awa_ingest_tests::assert_same_rows("jobs", &expected, &rows(&client, &stored, &[]).await);
        // Every array of one, and one that starts at an index of its own.
        assert_eq!(count(&client, "SELECT * FROM awa.enqueue_columns('[5:7]={a,b,c}', queue => '[0:0]={z}')").await, 3);
        let key_for_all = "SELECT awa.enqueue_columns('{a,b}', unique_key => '{x}', unique_states => '{11111111}')";
        assert_eq!(failure(client.query(key_for_all, &[]).await).ordinal(), Some(2), "the same key for both");
    }
}

/// A channel has 63 bytes, which a queue's name may exceed.
#[tokio::test(flavor = "multi_thread")]
async fn long_queue_names_work() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let lengths = [58, 59, 60, 63, 64, 65, 100, 199, 200];
        for length in lengths {
            for letter in ["q", "ü", "🐘"] {
                let batch = json!([{"kind": "k", "queue": letter.repeat(length)}]);
                client
                    .execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch])
                    .await
                    .unwrap_or_else(|e| panic!("{length} {letter}: {e:?}"));
                client.execute("SELECT awa.enqueue('k', queue => $1)", &[&letter.repeat(length)]).await.unwrap();
            }
        }
        let lanes = format!(
            "SELECT FROM {} GROUP BY queue HAVING array_agg(lane_seq ORDER BY job_id) = '{{1,2}}'",
            storage.table("ready_entries")
        );
        assert_eq!(count(&client, &lanes).await, 3 * lengths.len(), "{storage:?}");
    }
}

const TIMES: [&str; 22] = [
    "2030-01-02",
    "2030-01-02 03:04:05",
    "2030-01-02T03:04:05Z",
    "2030-01-02T03:04:05.123456+05:30",
    "2030-01-02 03:04 Europe/Berlin",
    "2030-07-02 03:04 Europe/Berlin",
    "2030-01-02 03:04 PST",
    "20300102T030405",
    "2030.002",
    "J2451187",
    "01/02/2030",
    "13/02/2030 UTC",
    "January 8, 2030 04:05 pm",
    "epoch",
    "infinity",
    "-infinity",
    "0044-03-15 12:00 BC",
    "4714-11-24 00:00+00 BC",
    "294276-12-31 23:59:59.999999",
    " 2030-01-02 \t",
    "1999-12-31 24:00:00",
    "2030-12-31 23:59:60",
];

/// As `timestamptz` reads it in the same session, in whatever zone and style that is.
#[tokio::test(flavor = "multi_thread")]
async fn times_are_read_as_sql_reads_them() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let sessions =
        ["SET timezone = 'UTC'", "SET timezone = 'America/St_Johns'", "SET timezone = '+14'", "SET datestyle = 'ISO, DMY'"];
    for (session, text) in sessions.into_iter().flat_map(|session| TIMES.map(|text| (session, text))) {
        client.batch_execute(session).await.unwrap();
        let read = "SELECT $1::text::timestamptz::text";
        let batch = json!([{"kind": "later", "run_at": text}, {"kind": "timed", "state": "available", "run_at": text}]);
        let enqueued = client.query("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await;
        match client.query_one(read, &[&text]).await {
            // In month-first styles there is no 13th month.
            Err(_) => assert_eq!(failure(enqueued).sqlstate, "22007", "{text}"),
            Ok(expected) => {
                enqueued.unwrap_or_else(|error| panic!("{text} under {session}: {error:?}"));
                let stored =
                    "SELECT run_at::text FROM awa_ingest.deferred_jobs UNION ALL SELECT run_at::text FROM awa_ingest.ready_entries
                    UNION ALL SELECT first_run_at::text FROM awa_ingest.ready_segments";
                let stored: Vec<String> = client.query(stored, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
                assert_eq!(stored, vec![expected.get::<_, String>(0); 3], "{text} under {session}");
            }
        }
        client
            .batch_execute("TRUNCATE awa_ingest.deferred_jobs, awa_ingest.ready_entries, awa_ingest.ready_segments")
            .await
            .unwrap();
    }
}

/// `now` and its kin are those of the transaction, as in any statement.
#[tokio::test(flavor = "multi_thread")]
async fn relative_times_are_those_of_the_transaction() {
    let client = Db::embedded().await.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let batch = json!(["now", "today", "tomorrow", "yesterday allballs"].map(|text| json!({"kind": text, "run_at": text})));
    client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await.unwrap();
    let stored = "SELECT FROM awa_ingest.deferred_jobs WHERE run_at = kind::timestamptz";
    assert_eq!(count(&client, stored).await, 4);
}

fn nested(depth: usize) -> String {
    format!("{}1{}", r#"{"a":["#.repeat(depth / 2), "]}".repeat(depth / 2))
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_json_is_carried_and_hashed() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        // The depth that PostgreSQL itself reads with 2 MB of stack, less the request's own levels, and the one that awa reads.
        let depth = if storage == Storage::Embedded { 5000 } else { 126 };
        let args = nested(depth);
        for unique in ["false", "true"] {
            let batch = format!(r#"[{{"kind": "k", "args": {args}, "unique": {unique}}}]"#);
            client.execute("SELECT awa.enqueue_batch($1::text::jsonb)", &[&batch]).await.expect("deep JSON");
            let metadata = format!(r#"[{{"kind": "k", "metadata": {args}, "unique": {{"by_args": {unique}}}}}]"#);
            client.execute("SELECT awa.enqueue_batch($1::text::jsonb, 'skip')", &[&metadata]).await.expect("deep JSON");
        }
        let again = failure(client.execute("SELECT awa.enqueue('k', $1::text::jsonb, uniqueness => 'true')", &[&args]).await);
        assert_eq!((again.sqlstate.as_str(), again.constraint.as_str()), ("23505", "idx_awa_jobs_unique"));
        let shallower = nested(depth - 2);
        client.execute("SELECT awa.enqueue('k', $1::text::jsonb, uniqueness => 'true')", &[&shallower]).await.expect("another key");
        let stored = format!("SELECT FROM {} WHERE replace(args::text, ' ', '') = $1", storage.table("ready_entries"));
        assert_eq!(client.query(&stored, &[&args]).await.unwrap().len(), 2, "{storage:?}");
    }
}

/// Values that are toasted where they come from and where they go, and numbers of every size.
#[tokio::test(flavor = "multi_thread")]
async fn big_values_are_carried() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        // What awa is to read has to fit a double.
        let digits = if storage == Storage::Embedded { 20000 } else { 300 };
        let source = format!(
            "CREATE TABLE source AS SELECT n, jsonb_build_object('text', repeat(md5(n::text), 100000), 'list',
            (SELECT jsonb_agg(i * 1.5) FROM generate_series(1, 20000) AS i), 'digits', repeat('9', {digits})::numeric,
            'small', ('1e-' || 10000 + n)::numeric) AS args FROM generate_series(1, 3) AS n"
        );
        client.batch_execute(&source).await.unwrap();
        let calls = [
            "SELECT awa.enqueue('single', args) FROM source",
            "SELECT awa.enqueue_batch(jsonb_agg(jsonb_build_object('kind', 'batch', 'args', args) ORDER BY n)) FROM source",
            "SELECT awa.enqueue_columns('{columns}', array_agg(args)) FROM source",
            "SELECT awa.enqueue('metadata', metadata => args) FROM source",
        ];
        for call in calls {
            client.batch_execute(call).await.expect(call);
        }
        let stored = format!(
            "SELECT FROM {} AS job JOIN source ON source.args = coalesce(job.payload->'metadata', job.args)",
            storage.table("ready_entries")
        );
        assert_eq!(count(&client, &stored).await, 4 * 3, "{storage:?}");
    }
}

/// Text that is special to COPY, to arrays or to JSON arrives as it was.
#[tokio::test(flavor = "multi_thread")]
async fn special_text_is_carried() {
    let texts = [
        "__AWA_NULL__",
        "\\N",
        "NULL",
        "{\"a\":1}",
        "a\tb\nc\rd",
        "'; DROP TABLE x; --",
        "$1 %s %I",
        "\u{1}\u{7f}\u{2028}",
        "é🐘\u{301}",
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for text in texts {
            let opts = awa_model::InsertOpts {
                queue: text.into(),
                tags: vec![text.into()],
                metadata: json!({text: text}),
                ..Default::default()
            };
            let job = jobs::job_with(text, json!([text]), opts);
            jobs::enqueue(&client, &job).await;
            jobs::enqueue_batch(&client, std::slice::from_ref(&job)).await;
            jobs::enqueue_columns(&client, &[job]).await;
            let stored = format!(
                "SELECT FROM {} WHERE kind = $1 AND queue = $1 AND args = $2 AND payload = $3",
                storage.table("ready_entries")
            );
            let payload: Value = json!({"tags": [text], "metadata": {text: text}});
            assert_eq!(client.query(&stored, &[&text, &json!([text]), &payload]).await.unwrap().len(), 3, "{text:?}");
        }
    }
}
