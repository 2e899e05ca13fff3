//! `awa_ingest.discard` and `discard_queue` take jobs out of the embedded storage with all that belongs to them.

use awa_ingest_tests::jobs::{self, key_of_shard};
use awa_ingest_tests::{Db, Storage, assert_lanes_intact, backend_pid, failure, rows, wait_until_blocked, within};
use serde_json::{Value, json};
use tokio_postgres::{Client, GenericClient};

async fn enqueue(client: &Client, jobs: &Value) -> Vec<i64> {
    let enqueued = client.query("SELECT job_id FROM awa.enqueue_batch($1::jsonb) ORDER BY ord", &[jobs]).await;
    enqueued.expect("enqueue_batch").into_iter().map(|row| row.get(0)).collect()
}

async fn discard(client: &impl GenericClient, id: i64) -> bool {
    client.query_one("SELECT awa_ingest.discard($1)", &[&id]).await.expect("discard").get(0)
}

async fn discard_queue(client: &Client, queue: &str) -> i64 {
    client.query_one("SELECT awa_ingest.discard_queue($1)", &[&queue]).await.expect("discard_queue").get(0)
}

/// Jobs that wait, by the view and by the rows.
async fn waiting(client: &Client, queue: &str) -> (i64, i64) {
    let sql = "SELECT (SELECT coalesce(sum(waiting), 0)::bigint FROM awa_ingest.lanes WHERE queue = $1),
                      (SELECT count(*) FROM awa_ingest.ready_entries WHERE queue = $1)";
    let row = client.query_one(sql, &[&queue]).await.expect(sql);
    (row.get(0), row.get(1))
}

async fn claims(client: &Client) -> Vec<Value> {
    rows(client, "(SELECT job_id FROM awa_ingest.job_unique_claims)", &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_with_its_key_and_its_place() {
    let client = Db::embedded().await.connect().await;
    let job = |n: i64| json!({"kind": "k", "queue": "q", "args": n, "unique": true});
    let batch: Value = (0..10).map(job).collect();
    let ids = enqueue(&client, &batch).await;
    let later = json!([{"kind": "later", "queue": "q", "unique": true, "run_at": "2041-01-01"}]);
    let deferred = enqueue(&client, &later).await[0];
    // The middle, both ends, the neighbour of one that is gone, and the last of a piece.
    for (gone, n) in [4, 0, 9, 5, 3, 1, 2].into_iter().enumerate() {
        assert!(discard(&client, ids[n]).await, "{n}");
        assert!(!discard(&client, ids[n]).await, "{n} once more");
        let left = 9 - gone as i64;
        assert_eq!(waiting(&client, "q").await, (left, left), "{n}");
        assert_lanes_intact(&client, "awa_ingest", "after a discard").await;
    }
    assert!(discard(&client, deferred).await);
    assert!(!discard(&client, deferred).await && !discard(&client, 0).await);
    assert!(rows(&client, "awa_ingest.deferred_jobs", &[]).await.is_empty());
    assert_eq!(claims(&client).await, [6, 7, 8].map(|n| json!({"job_id": ids[n]})), "keys of those that are left");
    // The keys are free again.
    enqueue(&client, &json!([job(4), later[0]])).await;
    assert_eq!(waiting(&client, "q").await, (4, 4));
    let nothing: Option<bool> = client.query_one("SELECT awa_ingest.discard(NULL)", &[]).await.unwrap().get(0);
    assert_eq!(nothing, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_goes_with_its_stripes_and_shards() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    Storage::Embedded.shard(&client, "q", 4).await;
    let jobs: Value = (0..40)
        .map(|n| {
            let mut job = json!({"kind": "k", "queue": "q", "priority": 1 + n % 4, "unique": n % 2 == 0, "args": n});
            job["ordering_key"] = json!(format!("\\x{}", hex::encode(key_of_shard((n % 4) as i16, 4))));
            if n % 5 == 0 {
                job["run_at"] = json!("2041-01-01");
            }
            job
        })
        .collect();
    enqueue(&client, &jobs).await;
    let others = enqueue(&client, &json!([{"kind": "k", "queue": "q2", "unique": true}, {"kind": "k", "queue": "other"}])).await;
    assert_eq!(discard_queue(&client, "q").await, 40);
    assert_eq!(discard_queue(&client, "q").await, 0);
    assert_eq!(waiting(&client, "q").await, (0, 0));
    assert_eq!(claims(&client).await, [json!({"job_id": others[0]})]);
    assert_lanes_intact(&client, "awa_ingest", "a queue").await;

    client.batch_execute("SET awa_ingest.queue_stripe_count = 3").await.expect("SET");
    let jobs: Value = (0..9).map(|n| json!({"kind": "k", "queue": "striped", "args": n})).collect();
    enqueue(&client, &jobs).await;
    assert_eq!(discard_queue(&client, "striped#1").await, 3);
    client.batch_execute("RESET awa_ingest.queue_stripe_count").await.expect("RESET");
    assert_eq!(discard_queue(&client, "striped").await, 6, "auto goes by the lanes that exist");
    assert_lanes_intact(&client, "awa_ingest", "stripes").await;
    assert_eq!(rows(&client, "awa_ingest.ready_segments", &[]).await.len(), 2, "the other queues'");
}

/// Producers go on beside a discard, and it beside them; what they have not committed stays.
#[tokio::test(flavor = "multi_thread")]
async fn producers_are_not_waited_for() {
    let db = Db::embedded().await;
    let (client, producer) = (db.connect().await, db.connect().await);
    enqueue(&client, &json!([{"kind": "k", "queue": "q"}, {"kind": "k", "queue": "q"}])).await;
    producer.batch_execute("BEGIN").await.unwrap();
    enqueue(&producer, &json!([{"kind": "k", "queue": "q"}])).await;
    client.batch_execute("BEGIN").await.unwrap();
    assert_eq!(within("discard_queue", discard_queue(&client, "q")).await, 2);
    enqueue(&producer, &json!([{"kind": "k", "queue": "q"}])).await;
    producer.batch_execute("COMMIT").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(waiting(&client, "q").await, (2, 2));
    assert_lanes_intact(&client, "awa_ingest", "beside a producer").await;
}

/// Two discards in one segment come after one another; a rollback gives everything back.
#[tokio::test(flavor = "multi_thread")]
async fn discards_wait_for_each_other() {
    let db = Db::embedded().await;
    let (one, two, observer) = (db.connect().await, db.connect().await, db.connect().await);
    for end in ["COMMIT", "ROLLBACK"] {
        let jobs: Value =
            (0..5).map(|n| json!({"kind": "k", "queue": end, "unique": {"by_queue": true, "by_args": true}, "args": n})).collect();
        let ids = enqueue(&observer, &jobs).await;
        one.batch_execute("BEGIN").await.unwrap();
        assert!(discard(&one, ids[1]).await);
        let pid = backend_pid(&two).await;
        let (gone, ()) = tokio::join!(within("the second", discard(&two, ids[2])), async {
            wait_until_blocked(&observer, pid).await;
            one.batch_execute(end).await.unwrap();
        });
        assert!(gone, "{end}");
        let left = if end == "COMMIT" { 3 } else { 4 };
        assert_eq!(waiting(&observer, end).await, (left, left), "{end}");
        assert_lanes_intact(&observer, "awa_ingest", end).await;
    }
}

/// What is left goes to awa; there its own clients remove jobs, and ids mean others.
#[tokio::test(flavor = "multi_thread")]
async fn adopt_takes_what_is_left() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let jobs: Value = (0..6).map(|n| json!({"kind": "k", "queue": "q", "unique": true, "args": n})).collect();
    let ids = enqueue(&client, &jobs).await;
    for n in [1, 2, 5] {
        assert!(discard(&client, ids[n]).await);
    }
    db.migrate_awa().await;
    client.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa'); SELECT awa_ingest.adopt()").await.expect("adopt");
    let args = rows(&client, "(SELECT args FROM awa.ready_entries ORDER BY lane_seq)", &[]).await;
    assert_eq!(args, [0, 3, 4].map(|n| json!({"args": n})));
    assert!(claims(&client).await.is_empty(), "awa has the keys");
    for call in ["SELECT awa_ingest.discard(1)", "SELECT awa_ingest.discard_queue('q')"] {
        assert_eq!(failure(client.execute(call, &[]).await).sqlstate, "55000", "{call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_may() {
    let db = Db::embedded().await;
    let admin = db.connect().await;
    let (operator, producer) = (db.role("operator").await, db.role("producer").await);
    let grant = format!("SELECT awa_ingest.grant_operator('{operator}'), awa_ingest.grant_producer('{producer}')");
    admin.batch_execute(&grant).await.expect("grants");
    let ids = enqueue(&admin, &json!([{"kind": "k", "unique": true}, {"kind": "l"}, {"kind": "m", "run_at": "2041-01-01"}])).await;
    let producer = db.connect_as(&producer).await;
    assert_eq!(failure(producer.execute("SELECT awa_ingest.discard($1)", &[&ids[0]]).await).sqlstate, "42501");
    assert_eq!(failure(producer.execute("SELECT awa_ingest.discard_queue('default')", &[]).await).sqlstate, "42501");
    let operator = db.connect_as(&operator).await;
    assert!(discard(&operator, ids[0]).await);
    assert_eq!(discard_queue(&operator, "default").await, 2);
    assert!(claims(&admin).await.is_empty());
    jobs::enqueue(&admin, &jobs::job("k", json!({}))).await;
}
