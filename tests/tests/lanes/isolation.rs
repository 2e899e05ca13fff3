//! Producers with an old snapshot write behind nobody's back: the ring position and the lanes are read as they are now.

use awa_ingest_tests::{Db, Storage, Worker, failure, jobs, rows};
use awa_model::{InsertOpts, InsertParams, QueueStorage, QueueStorageConfig, RotateOutcome, UniqueOpts};
use serde_json::{Value, json};
use tokio_postgres::Client;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn job(name: &str) -> InsertParams {
    jobs::job_with("step", json!(name), InsertOpts { queue: "ring".into(), ..Default::default() })
}

/// Begins a transaction whose snapshot is of now.
async fn begin_with_snapshot(client: &Client, level: &str) {
    client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class")).await.expect(level);
}

/// Turns the ring: awa does it on its own storage; the embedded one has no maintenance that a test could call yet.
async fn rotate(storage: Storage, db: &Db) {
    match storage {
        Storage::Attached => {
            let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
            let outcome = store.rotate(&db.pool().await).await.expect("rotate");
            assert!(matches!(outcome, RotateOutcome::Rotated { .. }), "{outcome:?}");
        }
        Storage::Embedded => {
            let sql = "UPDATE awa_ingest.queue_ring_state SET current_slot = current_slot + 1, generation = generation + 1";
            db.connect().await.batch_execute(sql).await.expect(sql);
        }
    }
}

/// What the lanes hold, in order, with the slot each job is in.
async fn lanes(client: &Client, storage: Storage) -> Vec<Value> {
    let ready = storage.table("ready_entries");
    rows(client, &format!("(SELECT lane_seq, ready_slot AS slot, ready_generation AS gen, args FROM {ready})"), &[]).await
}

/// The case of `protocol.md`: a producer that wrote its later range into the older slot would strand the job that
/// another one put into the newer slot before.
async fn rotation_between_snapshot_and_enqueue(storage: Storage, level: &str) -> Db {
    let db = storage.db().await;
    let (a, b) = (db.connect().await, db.connect().await);
    jobs::enqueue(&b, &job("b0")).await;
    begin_with_snapshot(&a, level).await;
    rotate(storage, &db).await;
    jobs::enqueue(&b, &job("b1")).await;
    jobs::enqueue(&a, &job("a1")).await;
    a.batch_execute("COMMIT").await.expect("the ring may turn under a snapshot");
    jobs::enqueue(&b, &job("b2")).await;

    let placed = |lane_seq: i64, slot: i64, args: &str| json!({"lane_seq": lane_seq, "slot": slot, "gen": slot, "args": args});
    let expected = [placed(1, 0, "b0"), placed(2, 1, "b1"), placed(3, 1, "a1"), placed(4, 1, "b2")];
    awa_ingest_tests::assert_same_rows(&format!("{storage:?}, {level}"), &expected, &lanes(&b, storage).await);
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_every_job_when_the_ring_turns_under_a_snapshot() {
    for level in LEVELS {
        let db = rotation_between_snapshot_and_enqueue(Storage::Attached, level).await;
        let worker = Worker::builder().queue("ring").kind("step").start(&db).await;
        worker.wait_for(4).await;
        let order: Vec<_> = worker.stop().await.into_iter().map(|job| job.args).collect();
        assert_eq!(order, ["b0", "b1", "a1", "b2"], "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_ring_turns_under_a_snapshot() {
    for level in LEVELS {
        rotation_between_snapshot_and_enqueue(Storage::Embedded, level).await;
    }
}

/// A lane that another session created after the snapshot is there, although the snapshot does not show it.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_created_after_the_snapshot_are_used() {
    for (storage, level) in Storage::BOTH.into_iter().flat_map(|s| LEVELS.map(|l| (s, l))) {
        let db = storage.db().await;
        let (a, b) = (db.connect().await, db.connect().await);
        begin_with_snapshot(&a, level).await;
        jobs::enqueue(&b, &job("b1")).await;
        jobs::enqueue_batch(&a, &[job("a1"), job("a2")]).await;
        a.batch_execute("COMMIT").await.expect("a lane may appear under a snapshot");
        jobs::enqueue(&b, &job("b2")).await;

        let ready = storage.table("ready_entries");
        let order = rows(&b, &format!("(SELECT lane_seq, args FROM {ready})"), &[]).await;
        let expected = [(1, "b1"), (2, "a1"), (3, "a2"), (4, "b2")].map(|(n, args)| json!({"lane_seq": n, "args": args}));
        awa_ingest_tests::assert_same_rows(&format!("{storage:?}, {level}"), &expected, &order);
        let lanes = rows(&b, &storage.table("queue_enqueue_heads"), &["seq_name"]).await;
        assert_eq!(lanes.len(), 1, "{lanes:?}");
    }
}

/// A shard count that was changed after the snapshot: routing follows the snapshot or the present, but loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_survive_resharding_under_a_snapshot() {
    let db = Db::awa().await;
    let (a, b) = (db.connect().await, db.connect().await);
    jobs::enqueue(&b, &job("b0")).await;
    begin_with_snapshot(&a, "REPEATABLE READ").await;
    Storage::Attached.shard(&b, "ring", 4).await;
    for _ in 0..4 {
        jobs::enqueue(&b, &job("b")).await;
    }
    for _ in 0..4 {
        jobs::enqueue(&a, &job("a")).await;
    }
    a.batch_execute("COMMIT").await.unwrap();
    let worker = Worker::builder().queue("ring").kind("step").start(&db).await;
    worker.wait_for(9).await;
    worker.stop().await;
}

/// A claim that was committed since the snapshot is refused as PostgreSQL refuses such writes, never skipped unseen.
#[tokio::test(flavor = "multi_thread")]
async fn claims_committed_after_the_snapshot_are_refused() {
    let unique = || {
        let mut job = job("once");
        job.opts.unique = Some(UniqueOpts::default());
        job
    };
    for (storage, level) in Storage::BOTH.into_iter().flat_map(|s| LEVELS[1..].iter().map(move |l| (s, *l))) {
        let db = storage.db().await;
        let (a, b) = (db.connect().await, db.connect().await);
        for (policy, allowed) in [("skip", &["40001"][..]), ("error", &["40001", "23505"])] {
            begin_with_snapshot(&a, level).await;
            b.batch_execute(&format!("DELETE FROM {}", storage.table("job_unique_claims"))).await.unwrap();
            jobs::enqueue_batch(&b, &[unique()]).await;
            let refused = failure(jobs::try_enqueue_batch(&a, &[unique()], policy).await);
            assert!(allowed.contains(&refused.sqlstate.as_str()), "{storage:?} {level} {policy}: {refused:?}");
            a.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}
