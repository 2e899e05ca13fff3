//! A gap in a lane can strand it: a call that starts again leaves none.

use std::collections::BTreeSet;
use std::time::Instant;

use awa_ingest_tests::{DEADLINE, Storage, assert_lanes_intact, backend_pid, rows, within};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::problems::sequence;

/// Every way in, each with a job for the lanes of `a`, of a new queue and of `b`.
const WAYS: [(&str, &str); 7] = [
    (
        "function",
        r#"SELECT * FROM awa.enqueue_batch('[{"kind": "k", "queue": "a"}, {"kind": "k", "queue": "aa1"}, {"kind": "k", "queue": "b"}]')"#,
    ),
    (
        "skipping",
        r#"SELECT * FROM awa.enqueue_batch('[{"kind": "k", "queue": "a", "unique": {}}, {"kind": "k", "queue": "a", "unique": {}},
            {"kind": "k", "queue": "aa2"}, {"kind": "k", "queue": "b"}]', 'skip')"#,
    ),
    ("columns", "SELECT * FROM awa.enqueue_columns(ARRAY['k'], queue => ARRAY['a', 'aa3', 'b'])"),
    ("CSV", "SELECT * FROM awa.enqueue_csv(E'kind,queue\nk,a\nk,aa4\nk,b\n'::text)"),
    ("INSERT", "INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'a'), ('k', 'aa5'), ('k', 'b')"),
    ("RETURNING", "INSERT INTO awa.ingest_skip_conflicts (kind, queue) VALUES ('k', 'a'), ('k', 'aa6'), ('k', 'b') RETURNING *"),
    ("COPY", r#"COPY awa.ingest (kind, queue) FROM PROGRAM 'printf "k\ta\nk\taa7\nk\tb\n"'"#),
];

/// awa's own storage alone has this one.
const COMPAT: &str = "SELECT * FROM awa_ingest.insert_jobs_compat_batch(ARRAY['k'], queue => ARRAY['a', 'aa8', 'b'])";

/// Positions of a queue's jobs.
async fn positions(client: &Client, storage: Storage, queue: &str) -> Value {
    let ready = storage.table("ready_entries");
    let sql = format!("(SELECT array_agg(lane_seq ORDER BY lane_seq) AS seqs FROM {ready} WHERE queue = '{queue}')");
    rows(client, &sql, &[]).await[0]["seqs"].clone()
}

/// Waits until `pid` has asked for a lock that it did not get three times.
async fn wait_for_retries(observer: &Client, pid: i32) {
    let (begun, mut waits) = (Instant::now(), BTreeSet::new());
    while waits.len() < 3 {
        let sql = "SELECT waitstart::text FROM pg_locks WHERE pid = $1 AND NOT granted AND waitstart IS NOT NULL";
        waits.extend(observer.query(sql, &[&pid]).await.expect(sql).iter().map(|row| row.get::<_, String>(0)));
        assert!(begun.elapsed() < DEADLINE, "asked {} times", waits.len());
    }
}

/// Runs `statement` while another session holds the lane of `b`, until it has started again.
async fn run_behind_b(client: Client, holder: &Client, storage: Storage, statement: &'static str) -> Client {
    let name = format!("{}.{}", storage.schema(), sequence(holder, "enqueue", "b").await);
    holder.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('{name}', 0))")).await.unwrap();
    // An attempt waits for less than half of it.
    client.batch_execute("SET deadlock_timeout = '10ms'").await.unwrap();
    let pid = backend_pid(&client).await;
    let waiting = tokio::spawn(async move {
        client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        client
    });
    wait_for_retries(holder, pid).await;
    holder.batch_execute("COMMIT").await.unwrap();
    within("the call", waiting).await.expect("the task")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_starts_again_leaves_no_gap() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (mut client, holder) = (db.connect().await, db.connect().await);
        client.batch_execute("SELECT awa.enqueue('k', queue => queue) FROM unnest(ARRAY['a', 'b']) AS queue").await.unwrap();
        let mut ways = WAYS.to_vec();
        if storage == Storage::Attached {
            client.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
            ways.push(("compat", COMPAT));
        }
        let mut expected = vec![1];
        for (number, (way, statement)) in (1..).zip(ways) {
            client = run_behind_b(client, &holder, storage, statement).await;
            expected.push(expected.len() + 1);
            for queue in ["a", "b"] {
                assert_eq!(positions(&client, storage, queue).await, json!(expected), "{way}, {queue}, {storage:?}");
            }
            assert_eq!(positions(&client, storage, &format!("aa{number}")).await, json!([1]), "{way}, {storage:?}");
        }
        assert_lanes_intact(&client, storage.schema(), "after all ways").await;
    }
}

/// Jobs that were moved from the embedded storage.
#[tokio::test(flavor = "multi_thread")]
async fn adopting_leaves_no_gap() {
    let db = Storage::Embedded.db().await;
    let (client, holder) = (db.connect().await, db.connect().await);
    client.batch_execute("SELECT awa.enqueue('k', queue => queue) FROM unnest(ARRAY['a', 'b']) AS queue").await.unwrap();
    db.migrate_awa().await;
    client.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
    client.batch_execute("SELECT awa.enqueue('k', queue => queue) FROM unnest(ARRAY['a', 'b']) AS queue").await.unwrap();
    let client = run_behind_b(client, &holder, Storage::Attached, "SELECT * FROM awa_ingest.adopt()").await;
    for queue in ["a", "b"] {
        assert_eq!(positions(&client, Storage::Attached, queue).await, json!([1, 2]), "{queue}");
    }
}
