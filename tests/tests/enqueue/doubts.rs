//! Jobs that can be stored but were most likely meant otherwise: refused, or reported once a statement by the first of them.

use awa_ingest_tests::copy::copy_in;
use awa_ingest_tests::{Db, Storage, failure};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// The warnings that this database's sessions have caused so far.
fn warnings(db: &Db) -> Vec<String> {
    let start = format!("] {} WARNING:  ", db.name());
    db.cluster().log().lines().filter_map(|line| line.split_once(&start).map(|(_, warning)| warning.to_owned())).collect()
}

/// A way in for `jobs`, which are kind, queue and args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Batch,
    Columns,
    Csv,
    Copy,
    Insert,
}

const WAYS: [Way; 5] = [Way::Batch, Way::Columns, Way::Csv, Way::Copy, Way::Insert];

type Job<'a> = (&'a str, &'a str, Value);

fn csv(jobs: &[Job<'_>]) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    jobs.iter().map(|(kind, queue, args)| [quote(kind), quote(queue), quote(&args.to_string())].join(",") + "\n").collect()
}

impl Way {
    async fn enqueue(self, client: &Client, jobs: &[Job<'_>]) -> Result<u64, tokio_postgres::Error> {
        let objects: Value = jobs.iter().map(|(kind, queue, args)| json!({"kind": kind, "queue": queue, "args": args})).collect();
        let kinds: Vec<_> = jobs.iter().map(|job| job.0).collect();
        let queues: Vec<_> = jobs.iter().map(|job| job.1).collect();
        let args: Vec<_> = jobs.iter().map(|job| job.2.to_string()).collect();
        match self {
            Self::Batch => client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&objects]).await,
            Self::Columns => client.execute("SELECT awa.enqueue_columns($1, $2, queue => $3)", &[&kinds, &args, &queues]).await,
            Self::Csv => {
                let sql = "SELECT awa.enqueue_csv($1::text, header => false, columns => '{kind,queue,args}')";
                client.execute(sql, &[&csv(jobs)]).await
            }
            Self::Copy => {
                let sql = "COPY awa.ingest (kind, queue, args) FROM STDIN (FORMAT csv)";
                copy_in(client, sql, csv(jobs)).await
            }
            Self::Insert => {
                let sql = "INSERT INTO awa.ingest (kind, queue, args) SELECT kind, queue, args::jsonb
                    FROM unnest($1::text[], $2::text[], $3::text[]) AS job (kind, queue, args)";
                client.execute(sql, &[&kinds, &queues, &args]).await
            }
        }
    }
}

/// Every way in says so once, with the first job and the number of others; good jobs give no warning.
#[tokio::test(flavor = "multi_thread")]
async fn doubts_are_reported_once_a_statement() {
    let jobs = [
        ("good", "q", json!({"kind": "page", "page": 1})),
        ("send_email\n", "q", json!("text")),
        (" send_email", "q ", json!("{\"a\": 1}")),
        ("send\u{200b}email", "q\u{a0}", json!({"kind": "k", "queue": "q", "args": {}})),
        ("good", "q", json!(" [1] ")),
    ];
    let expected = [
        "job 2: kind \"send_email\\n\" has blanks or invisible characters that a worker's kind does not have (and so in 2 more jobs)",
        "job 3: queue \"q \" has blanks or invisible characters, and is another queue than without them (and so in 1 more job)",
        "job 3: args is a string that holds JSON: it was encoded twice (and so in 1 more job)",
        "job 4: args looks like a whole job",
    ];
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        for way in WAYS {
            let before = warnings(&db).len();
            way.enqueue(&client, &jobs).await.unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
            assert_eq!(warnings(&db)[before..], expected, "{way:?}, {storage:?}");
            way.enqueue(&client, &jobs[..1]).await.unwrap();
            assert_eq!(warnings(&db).len(), before + expected.len(), "{way:?}, {storage:?}");
        }
        let before = warnings(&db).len();
        client.batch_execute("SELECT awa.enqueue('k ', '{\"kind\": \"k\", \"args\": {}}')").await.unwrap();
        assert_eq!(warnings(&db).len(), before + 2);
        assert_eq!(
            warnings(&db)[before],
            "job 1: kind \"k \" has blanks or invisible characters that a worker's kind does not have"
        );
    }
}

/// A byte order mark becomes part of the first value where there is no header line.
#[tokio::test(flavor = "multi_thread")]
async fn a_byte_order_mark_is_refused() {
    let client = Db::embedded().await.connect().await;
    for jobs in [[("\u{feff}k", "q", json!({}))], [("k", "\u{feff}q", json!({}))]] {
        let column = if jobs[0].0 == "k" { "queue" } else { "kind" };
        for way in WAYS {
            let refused = failure(way.enqueue(&client, &jobs).await);
            assert_eq!((refused.sqlstate.as_str(), refused.column.as_str()), ("22023", column), "{way:?}: {refused:?}");
            assert_eq!(refused.ordinal(), Some(1));
            assert!(refused.hint.contains("BOM"), "{refused:?}");
        }
    }
    for format in ["text", "csv"] {
        let sql = format!("COPY awa.ingest (kind) FROM STDIN (FORMAT {format})");
        let refused = failure(copy_in(&client, &sql, "\u{feff}k\nk\n").await);
        assert_eq!(refused.sqlstate, "22023", "{refused:?}");
        assert!(refused.context.contains("line 1"), "{refused:?}");
    }
    // enqueue_csv takes the mark off.
    let sql = "SELECT awa.enqueue_csv(E'\\uFEFFk\\n', header => false, columns => '{kind}')";
    client.batch_execute(sql).await.unwrap();
    let stored = client.query("SELECT kind FROM awa_ingest.ready_entries", &[]).await.unwrap();
    assert_eq!(stored.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["k"]);
}

/// The queue with the empty name is awa's, and comes from awa's clients alone.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_queue_is_only_for_awas_clients() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let jobs = [("k", "", json!({})), ("k", "q", json!({})), ("k", "", json!({}))];
        for way in WAYS.into_iter().filter(|way| *way != Way::Copy) {
            let refused = failure(way.enqueue(&client, &jobs).await);
            let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.column.as_str(), refused.ordinal());
            assert_eq!(found, ("23514", "queue_name_length", "queue", Some(1)), "{way:?}: {refused:?}");
        }
        let option = "CREATE FOREIGN TABLE t (args jsonb) SERVER awa_ingest OPTIONS (kind 'k', queue '')";
        assert_eq!(failure(client.batch_execute(option).await).sqlstate, "23514");
        assert_eq!(warnings(&db), Vec::<String>::new());
        Way::Copy.enqueue(&client, &jobs).await.unwrap();
        assert_eq!(warnings(&db), ["job 1: the name of the queue is empty (and so in 1 more job)"]);
        let stored = format!("SELECT count(*) FROM {} WHERE queue = ''", storage.table("ready_entries"));
        assert_eq!(client.query_one(&stored, &[]).await.unwrap().get::<_, i64>(0), 2, "{storage:?}");
    }
}

/// The replaced function, called many times in a statement, warns once.
#[tokio::test(flavor = "multi_thread")]
async fn the_replaced_function_takes_an_empty_queue_with_a_warning() {
    let db = Db::awa().await;
    let client = db.connect().await;
    client.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
    let call =
        "SELECT awa.insert_job_compat('k', '', '{}', 'available', 2::smallint, 25::smallint, NULL, '{}', '{}', NULL, NULL, NULL)
        FROM generate_series(1, 10)";
    for calls in 1..=2 {
        assert_eq!(client.query(call, &[]).await.unwrap().len(), 10);
        assert_eq!(warnings(&db), vec!["the name of the queue is empty"; calls]);
    }
}

/// What other programs write into CSV for nothing and for whole numbers.
#[tokio::test]
async fn fields_of_other_programs_get_the_hint_that_helps() {
    let client = Db::embedded().await.connect().await;
    for column in [
        "queue",
        "priority",
        "max_attempts",
        "run_at",
        "state",
        "args",
        "metadata",
        "tags",
        "unique_key",
        "unique_states",
        "uniqueness",
    ] {
        let csv = format!("kind,{column}\nk,\n");
        let refused = failure(client.query("SELECT awa.enqueue_csv($1::text)", &[&csv]).await);
        assert!(refused.hint.contains("null_string => ''"), "{column}: {refused:?}");
        assert_eq!(
            (refused.ordinal(), refused.context.as_str()),
            (Some(1), &*format!("CSV line 2, column {column}")),
            "{refused:?}"
        );
        client.query("SELECT awa.enqueue_csv($1::text, null_string => '')", &[&csv]).await.expect(column);
    }
    // In quotes it is a value, as any other.
    let quoted = failure(client.query("SELECT awa.enqueue_csv(E'kind,queue\\nk,\"\"\\n', null_string => '')", &[]).await);
    assert_eq!((quoted.sqlstate.as_str(), quoted.constraint.as_str()), ("23514", "queue_name_length"));
    for number in ["1.0", "1.", "1e0", " 2.00 "] {
        let csv = format!("kind,priority\nk,{number}\n");
        let refused = failure(client.query("SELECT awa.enqueue_csv($1::text)", &[&csv]).await);
        assert_eq!(refused.sqlstate, "22P02");
        assert!(refused.hint.contains("1, not 1.0"), "{number}: {refused:?}");
    }
    let refused = failure(client.query("SELECT awa.enqueue_csv(E'kind,priority\\nk,1.5\\n')", &[]).await);
    assert_eq!((refused.sqlstate.as_str(), refused.hint.as_str()), ("22P02", ""));
}
