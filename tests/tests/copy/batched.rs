//! PostgreSQL 16 and later hand a COPY or INSERT over in batches, if the table's option allows it: that changes nothing but the speed.

use awa_ingest_tests::copy::{Format, Row, Summary, copy_csv, copy_rows, last_ingest, last_summary};
use awa_ingest_tests::jobs::Enqueued;
use awa_ingest_tests::{Storage, Stored, failure, stored_kinds};
use serde_json::json;
use tokio_postgres::Client;

/// No batches, ones that do and do not divide the rows, and one larger than all.
const SIZES: [u32; 4] = [1, 2, 7, 1000];

const COLUMNS: &str = "kind text, queue text, args jsonb, state text, priority smallint, max_attempts smallint, run_at timestamptz,
    metadata jsonb, tags text[], unique_key bytea, unique_states text, ordering_key bytea, uniqueness jsonb, job_id bigint";

async fn create_tables(client: &Client) {
    for size in SIZES {
        for policy in ["error", "skip"] {
            let create = format!(
                "CREATE FOREIGN TABLE {policy}_{size} ({COLUMNS}) SERVER awa_ingest OPTIONS (on_conflict '{policy}', batch_size '{size}')"
            );
            client.batch_execute(&create).await.expect(&create);
        }
    }
}

/// Jobs in several lanes, deferred ones, and keys of which some repeat.
fn batch(repeating: bool) -> Vec<Row> {
    (0..200)
        .map(|n: usize| Row {
            queue: Some(["a", "b", "c"][n % 3].to_owned()),
            priority: n.is_multiple_of(4).then_some(1),
            run_at: n.is_multiple_of(11).then(|| "2041-01-01T00:00:00Z".parse().expect("a time")),
            tags: n.is_multiple_of(5).then(|| vec![format!("t{n}"), "x,\"y\"".to_owned()]),
            metadata: n.is_multiple_of(7).then(|| json!({"n": n})),
            uniqueness: n.is_multiple_of(2).then_some(json!(true)),
            ..Row::new("k", json!(if repeating { n % 60 } else { n }))
        })
        .collect()
}

/// Ids from the first of the statement on.
fn counted(answer: Vec<Enqueued>) -> Vec<(i64, Option<i64>, Option<i64>)> {
    let first = answer.iter().filter_map(|row| row.job_id).min().expect("something was enqueued");
    let counted = |id: Option<i64>| id.map(|id| id - first);
    answer.iter().map(|row| (row.ord, counted(row.job_id), counted(row.conflicts_with))).collect()
}

type Result = (Stored, Vec<(i64, Option<i64>, Option<i64>)>, Summary);

/// What a statement leaves and says, and takes back.
async fn outcome(client: &Client, storage: Storage, run: impl AsyncFnOnce()) -> Result {
    client.batch_execute("BEGIN").await.unwrap();
    run().await;
    let answer = counted(last_ingest(client).await);
    let summary = Summary { job_ids: None, ..last_summary(client).await.expect("a statement") };
    let stored = Stored::read(client, storage).await;
    client.batch_execute("ROLLBACK").await.unwrap();
    (stored, answer, summary)
}

#[track_caller]
fn assert_same(expected: &Result, found: &Result, what: &str) {
    expected.0.assert_same(&found.0, what);
    assert_eq!((&expected.1, &expected.2), (&found.1, &found.2), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_leave_the_same_rows() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        create_tables(&client).await;
        for (policy, rows) in [("error", batch(false)), ("skip", batch(true))] {
            for format in Format::ALL {
                let mut single = None;
                for size in SIZES {
                    let copy = async || {
                        assert_eq!(copy_rows(&client, &format!("{policy}_{size}"), format, &rows).await.expect("COPY"), 200)
                    };
                    let found = outcome(&client, storage, copy).await;
                    assert_same(single.get_or_insert(found.clone()), &found, &format!("{policy}_{size}, {format:?}, {storage:?}"));
                }
            }
        }
    }
}

/// INSERT … SELECT is batched too, but for rows that somebody looks at.
#[tokio::test(flavor = "multi_thread")]
async fn inserts_are_the_same() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        create_tables(&client).await;
        let mut single = None;
        for size in SIZES {
            let select = format!(
                "INTO skip_{size} (kind, args, queue, uniqueness) SELECT 'k', to_jsonb(n % 40), 'q' || n % 3, to_jsonb(n % 2 = 0)
                   FROM generate_series(1, 100) AS n"
            );
            for insert in [
                format!("INSERT {select}"),
                format!("INSERT {select} ON CONFLICT DO NOTHING"),
                format!("INSERT {select} RETURNING job_id"),
                format!("WITH new AS (INSERT {select} RETURNING job_id) SELECT count(*) FROM new"),
                format!("EXPLAIN ANALYZE INSERT {select}"),
            ] {
                let found = outcome(&client, storage, async || drop(client.query(&insert, &[]).await.expect(&insert))).await;
                assert_same(single.get_or_insert(found.clone()), &found, &format!("{insert}, {storage:?}"));
            }
        }
    }
}

/// A partition, a BEFORE trigger, and rows that are filtered: where the server sends batches, and where it does not.
#[tokio::test(flavor = "multi_thread")]
async fn batches_through_other_tables() {
    for storage in Storage::BOTH {
        let mut expected = None;
        for size in SIZES {
            let client = storage.db().await.connect().await;
            let setup = format!(
                "CREATE TABLE events (kind text, queue text) PARTITION BY LIST (queue);
                 CREATE FOREIGN TABLE a PARTITION OF events FOR VALUES IN ('a') SERVER awa_ingest OPTIONS (batch_size '{size}');
                 CREATE FOREIGN TABLE b PARTITION OF events FOR VALUES IN ('b') SERVER awa_ingest OPTIONS (batch_size '{size}');
                 CREATE FUNCTION keep_even() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     RETURN CASE WHEN NEW.kind::int % 2 = 0 THEN NEW END; END $$;
                 CREATE TRIGGER keep_even BEFORE INSERT ON b FOR EACH ROW EXECUTE FUNCTION keep_even()"
            );
            client.batch_execute(&setup).await.unwrap();
            let csv: String = (0..100).map(|n| format!("{n},{}\n", if n % 3 == 0 { "a" } else { "b" })).collect();
            copy_csv(&client, "events", "kind, queue", &csv).await.expect("COPY");
            let found = stored_kinds(&client, storage).await;
            let lanes = Stored::read(&client, storage).await.within_lanes();
            let wanted = (0..100).filter(|n| n % 3 == 0 || n % 2 == 0).count();
            assert_eq!(found.len(), wanted, "{size}, {storage:?}");
            let expected: &Stored = expected.get_or_insert(lanes.clone());
            expected.assert_same(&lanes, &format!("{size}, {storage:?}"));
        }
    }
}

/// Errors have the same SQLSTATE, message, constraint and column. A COPY's line is that of the batch's end.
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_the_same() {
    let good = |n: usize| Row::new("good", json!(n));
    let bad = [
        Row { kind: None, ..good(0) },
        Row { priority: Some(7), ..good(0) },
        Row { state: Some("failed".to_owned()), ..good(0) },
        Row { tags: Some(vec!["t".to_owned(); 21]), ..good(0) },
        Row { unique_key: Some(vec![1]), uniqueness: Some(json!(true)), ..good(0) },
        Row { uniqueness: Some(json!({"by": 1})), ..good(0) },
        Row { uniqueness: Some(json!(true)), ..Row::new("taken", json!(0)) },
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        create_tables(&client).await;
        client.batch_execute("INSERT INTO awa.ingest (kind, args, uniqueness) VALUES ('taken', '0', 'true')").await.unwrap();
        for bad in &bad {
            let rows: Vec<Row> = (0..5).map(good).chain([bad.clone()]).chain((5..10).map(good)).collect();
            let mut single = None;
            for size in SIZES {
                let mut refused = failure(copy_rows(&client, &format!("error_{size}"), Format::Csv, &rows).await);
                assert_eq!(refused.ordinal(), Some(6), "batch_size {size}: {refused:?}");
                refused.context.clear();
                let expected = single.get_or_insert(refused.clone());
                assert_eq!(*expected, refused, "batch_size {size}, {storage:?}");
            }
        }
        assert_eq!(stored_kinds(&client, storage).await, ["taken"], "{storage:?}");
    }
}
