//! The harness itself, without the extension: databases, errors, and a real awa worker on jobs of awa's own client.

use std::collections::BTreeSet;
use std::time::Duration;

use awa_ingest_tests::{
    Cluster, Db, Template, Worker, assert_same_rows, backend_pid, failure, jobs, rows, wait_until, wait_until_blocked,
};
use awa_model::{InsertOpts, QueueStorage, QueueStorageConfig};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn databases_are_apart() {
    let (one, other) = (Db::bare().await, Db::bare().await);
    one.connect().await.batch_execute("CREATE TABLE t AS SELECT 1 AS i").await.unwrap();
    let refused = failure(other.connect().await.query("SELECT * FROM t", &[]).await);
    assert_eq!(refused.sqlstate, "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_its_own_has_its_settings_and_goes_away() {
    let cluster = Cluster::start(&[("work_mem", "77MB")]);
    let db = Db::on(cluster.clone(), Template::Bare).await;
    let work_mem: String = db.connect().await.query_one("SHOW work_mem", &[]).await.unwrap().get(0);
    assert_eq!(work_mem, "77MB");

    let port = cluster.port();
    drop((db, cluster));
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_carry_what_tests_assert_on() {
    let client = Db::bare().await.connect().await;
    client.batch_execute("CREATE TABLE t (i int CONSTRAINT positive CHECK (i > 0))").await.unwrap();
    let refused = failure(client.batch_execute("INSERT INTO t VALUES (0)").await);
    assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23514", "positive"));

    let raised = "DO $$ BEGIN RAISE 'job 12: bad' USING HINT = 'Do better.', COLUMN = 'kind'; END $$";
    let refused = failure(client.batch_execute(raised).await);
    assert_eq!(refused.ordinal(), Some(12));
    assert_eq!((refused.hint.as_str(), refused.column.as_str()), ("Do better.", "kind"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_compare_without_order_and_columns() {
    let client = Db::bare().await.connect().await;
    let one = rows(&client, "(VALUES (1, 'a'), (2, 'b'))", &["column1"]).await;
    let other = rows(&client, "(VALUES (8, 'b'), (9, 'a'))", &["column1"]).await;
    assert_same_rows("values", &one, &other);
    let less = std::panic::catch_unwind(|| assert_same_rows("values", &one, &other[..1]));
    assert!(less.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_sees_blocked_sessions() {
    let db = Db::bare().await;
    let (holder, waiter, observer) = (db.connect().await, db.connect().await, db.connect().await);
    let pid = backend_pid(&waiter).await;
    holder.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(1)").await.unwrap();
    let waiting = tokio::spawn(async move { waiter.batch_execute("SELECT pg_advisory_xact_lock(1)").await });
    wait_until_blocked(&observer, pid).await;
    holder.batch_execute("COMMIT").await.unwrap();
    waiting.await.unwrap().unwrap();
    wait_until(&observer, "SELECT count(*) = 0 FROM pg_locks WHERE NOT granted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_arrive() {
    let db = Db::bare().await;
    let (listener, mut notifications) = db.listen("awa:a \"quoted\" queue").await;
    db.connect().await.batch_execute("NOTIFY \"awa:a \"\"quoted\"\" queue\"").await.unwrap();
    assert_eq!(notifications.next().await.payload(), "");
    listener.batch_execute("SELECT 1").await.unwrap();
    assert!(notifications.arrived().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_drains_what_awas_client_enqueued() {
    let db = Db::of(Template::AwaOnly).await;
    let store = QueueStorage::new(QueueStorageConfig::default()).unwrap();
    let soon = chrono::Utc::now() + chrono::Duration::milliseconds(200);
    let batch: Vec<_> = (0..20)
        .map(|n| {
            let run_at = (n >= 10).then_some(soon);
            jobs::job_with("greet", json!({"n": n}), InsertOpts { queue: "q".into(), run_at, ..Default::default() })
        })
        .collect();
    store.enqueue_params_copy(&db.pool().await, &batch).await.unwrap();

    let worker = Worker::builder().queue("q").kind("greet").start(&db).await;
    worker.wait_for(20).await;
    let seen = worker.stop().await;
    assert_eq!(seen.len(), 20);
    let ready: Vec<_> = seen[..10].iter().map(|job| job.args["n"].as_i64().unwrap()).collect();
    assert_eq!(ready, (0..10).collect::<Vec<_>>());
    let all: BTreeSet<_> = seen.iter().map(|job| job.args["n"].as_i64().unwrap()).collect();
    assert_eq!(all, (0..20).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_survives_fast_rotation() {
    let db = Db::of(Template::AwaOnly).await;
    let (store, pool) = (QueueStorage::new(QueueStorageConfig::default()).unwrap(), db.pool().await);
    let worker = Worker::builder().queue("q").kind("greet").max_workers(8).rotate_every(Duration::from_millis(20));
    let worker = worker.start(&db).await;
    for batch in 0..20 {
        let opts = InsertOpts { queue: "q".into(), ..Default::default() };
        let batch: Vec<_> = (0..10).map(|n| jobs::job_with("greet", json!([batch, n]), opts.clone())).collect();
        store.enqueue_params_batch(&pool, &batch).await.unwrap();
    }
    worker.wait_for(200).await;
    let ids: BTreeSet<_> = worker.stop().await.into_iter().map(|job| job.id).collect();
    assert_eq!(ids.len(), 200);
}
