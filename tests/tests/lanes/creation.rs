//! Producers that create lanes at the same time: each lane is made once, and nobody waits crosswise.

use std::sync::Arc;

use awa_ingest_tests::{Storage, assert_same_rows, backend_pid, jobs, rows, wait_until_blocked, within};
use awa_model::{InsertOpts, InsertParams, QueueStorage, QueueStorageConfig};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_postgres::Client;

/// A job for one shard of two.
fn job_in_shard(queue: &str, shard: i16) -> InsertParams {
    let ordering_key = Some(jobs::key_of_shard(shard, 2));
    jobs::job_with("step", json!(shard), InsertOpts { queue: queue.into(), ordering_key, ..Default::default() })
}

/// The positions of each lane, in order.
async fn positions(client: &Client, storage: Storage) -> Vec<Value> {
    let sql = "(SELECT queue, enqueue_shard AS shard, array_agg(lane_seq ORDER BY lane_seq) AS positions FROM {} GROUP BY 1, 2)";
    rows(client, &sql.replace("{}", &storage.table("ready_entries")), &[]).await
}

/// The lanes of one queue and priority share a row of `queue_lanes`: whoever creates one of them must not wait for that row while it
/// holds what the row's creator may want next.
#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_new_queue_do_not_deadlock() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (first, second, observer) = (db.connect().await, db.connect().await, db.connect().await);
        storage.shard(&observer, "a", 2).await;
        first.batch_execute("BEGIN").await.unwrap();
        jobs::enqueue(&first, &job_in_shard("a", 0)).await;

        let pid = backend_pid(&second).await;
        let waiting = tokio::spawn(async move { jobs::try_enqueue(&second, &job_in_shard("a", 1)).await });
        wait_until_blocked(&observer, pid).await;
        jobs::enqueue(&first, &job_in_shard("a", 1)).await;
        first.batch_execute("COMMIT").await.unwrap();
        within("the second producer", waiting).await.expect("the task").expect("no deadlock");

        let lane = |shard: i16, positions: &[i64]| json!({"queue": "a", "shard": shard, "positions": positions});
        assert_same_rows("lanes", &[lane(0, &[1]), lane(1, &[1, 2])], &positions(&observer, storage).await);
    }
}

/// A creator that rolls back leaves the lane to the one that waited for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_whose_creator_rolls_back_is_created_by_the_next() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (first, second, observer) = (db.connect().await, db.connect().await, db.connect().await);
        first.batch_execute("BEGIN").await.unwrap();
        jobs::enqueue(&first, &job_in_shard("a", 0)).await;
        let pid = backend_pid(&second).await;
        let waiting = tokio::spawn(async move { jobs::try_enqueue(&second, &job_in_shard("a", 0)).await });
        wait_until_blocked(&observer, pid).await;
        first.batch_execute("ROLLBACK").await.unwrap();
        within("the second producer", waiting).await.expect("the task").expect("the lane is free");
        let heads = rows(&observer, &storage.table("queue_claim_heads"), &["seq_name"]).await;
        assert_eq!((heads.len(), positions(&observer, storage).await.len()), (1, 1), "{storage:?}");
    }
}

/// At REPEATABLE READ the row of `queue_lanes` that another session made after the snapshot is no reason to fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_added_to_a_queue_that_the_snapshot_does_not_show() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (old, new) = (db.connect().await, db.connect().await);
        storage.shard(&new, "a", 2).await;
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await.unwrap();
        jobs::enqueue(&new, &job_in_shard("a", 0)).await;
        jobs::enqueue(&old, &job_in_shard("a", 1)).await;
        old.batch_execute("COMMIT").await.unwrap();
        assert_eq!(positions(&new, storage).await.len(), 2, "{storage:?}");
    }
}

/// Eight producers meet at lanes that do not exist yet, round after round.
#[tokio::test(flavor = "multi_thread")]
async fn producers_race_for_new_shards() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let barrier = Arc::new(Barrier::new(8));
        let mut producers = JoinSet::new();
        for round in 0..ROUNDS {
            storage.shard(&client, &format!("q{round}"), 2).await;
        }
        for producer in 0..8 {
            let (client, barrier) = (db.connect().await, barrier.clone());
            producers.spawn(async move {
                for round in 0..ROUNDS {
                    let queue = format!("q{round}");
                    let mut batch = vec![job_in_shard(&queue, 1), job_in_shard(&queue, 0)];
                    batch.truncate(1 + producer % 2);
                    barrier.wait().await;
                    jobs::enqueue_batch(&client, &batch).await;
                }
            });
        }
        within("the producers", producers.join_all()).await;
        let lane = |round: usize, shard: i16, positions: &[i64]| json!({"queue": format!("q{round}"), "shard": shard, "positions": positions});
        let expected: Vec<_> =
            (0..ROUNDS).flat_map(|r| [lane(r, 0, &[1, 2, 3, 4]), lane(r, 1, &[1, 2, 3, 4, 5, 6, 7, 8])]).collect();
        assert_same_rows(&format!("{storage:?}"), &expected, &positions(&client, storage).await);
    }
}

const ROUNDS: usize = 25;

/// The same with awa's own producers among them. One shard each: over several, awa's producers deadlock with each other.
#[tokio::test(flavor = "multi_thread")]
async fn awas_producers_race_for_new_lanes_too() {
    let db = Storage::Attached.db().await;
    let (pool, barrier) = (db.pool().await, Arc::new(Barrier::new(8)));
    let mut producers = JoinSet::new();
    for producer in 0..8 {
        let (client, pool, barrier) = (db.connect().await, pool.clone(), barrier.clone());
        producers.spawn(async move {
            let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
            for round in 0..ROUNDS {
                let batch = [job_in_shard(&format!("q{round}"), 0)];
                barrier.wait().await;
                if producer % 2 == 0 {
                    jobs::enqueue_batch(&client, &batch).await;
                } else {
                    store.enqueue_params_batch(&pool, &batch).await.expect("no deadlock");
                }
            }
        });
    }
    within("the producers", producers.join_all()).await;
    let lane = |round: usize| json!({"queue": format!("q{round}"), "shard": 0, "positions": [1, 2, 3, 4, 5, 6, 7, 8]});
    let expected: Vec<_> = (0..ROUNDS).map(lane).collect();
    assert_same_rows("lanes", &expected, &positions(&db.connect().await, Storage::Attached).await);
}
