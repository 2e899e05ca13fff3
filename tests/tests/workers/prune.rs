//! A worker prunes what real awa workers have done with.

use awa_ingest_tests::{Db, Template, Worker, jobs};
use awa_model::{InsertOpts, QueueStorage, QueueStorageConfig};
use serde_json::json;

use crate::support::{preloaded, rotate, run, wait_for_run, worker, worker_other_than};

#[tokio::test]
async fn slots_come_free_and_counts_stay() {
    let db = Db::on(preloaded(), Template::Awa).await;
    let client = db.connect().await;
    run(&client, &[&format!("ALTER DATABASE {} SET awa_ingest.prune_interval = 50", db.name())]).await;
    let pid = worker(&client).await;
    client.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("pg_terminate_backend");
    worker_other_than(&client, pid).await;

    let awa = Worker::builder().queue("q").kind("some").start(&db).await;
    let on_q = || InsertOpts { queue: "q".into(), ..Default::default() };
    let batch: Vec<_> = (0..20).map(|n| jobs::job_with("some", json!({"n": n}), on_q())).collect();
    jobs::enqueue_batch(&client, &batch).await;
    awa.wait_for(20).await;
    awa.stop().await;
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
    let pool = db.pool().await;
    assert_eq!(store.queue_counts(&pool, "q").await.expect("queue_counts").terminal, 20);
    store.rotate_claims(&pool).await.expect("rotate_claims");
    rotate(&db).await;
    wait_for_run(&client, "ring = 'claim' AND slot = 0 AND outcome = 'pruned'").await;
    wait_for_run(&client, "ring = 'queue' AND slot = 0 AND outcome = 'pruned'").await;
    let left = "SELECT (SELECT count(*) FROM awa.ready_entries_0) + (SELECT count(*) FROM awa.receipt_completion_batches_0)
                     + (SELECT count(*) FROM awa.lease_claim_batches_0) + (SELECT count(*) FROM awa.done_entries_0)";
    assert_eq!(client.query_one(left, &[]).await.expect(left).get::<_, i64>(0), 0);
    assert_eq!(store.queue_counts(&pool, "q").await.expect("queue_counts").terminal, 20);
    pool.close().await;
}
