//! Callers with an old snapshot: the ring's position and the lanes are read as they are now, so that no job is stranded.

use awa_ingest_tests::{Db, Worker, assert_same_rows, backend_pid, failure, rows, wait_until_blocked, within};
use awa_model::{QueueStorage, QueueStorageConfig, RotateOutcome};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::setup::{assert_lanes_are_whole, attached, insert, ready_args, run, try_insert};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

async fn begin_with_snapshot(client: &Client, level: &str) {
    run(client, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class")).await;
}

async fn rotate(db: &Db) {
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
    let outcome = store.rotate(&db.pool().await).await.expect("rotate");
    assert!(matches!(outcome, RotateOutcome::Rotated { .. }), "{outcome:?}");
}

async fn step(client: &Client, name: &str) {
    insert(client, &format!("'step', 'ring', '\"{name}\"'")).await;
}

/// The case of `protocol.md`: a producer that wrote its later position into the older slot would strand the job that another one
/// put into the newer slot before. awa's own function does just that at REPEATABLE READ.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_every_job_when_the_ring_turns_under_a_snapshot() {
    for (level, called_before) in LEVELS.into_iter().flat_map(|level| [(level, false), (level, true)]) {
        let what = format!("{level}, called before: {called_before}");
        let db = attached().await;
        let (a, b) = (db.connect().await, db.connect().await);
        if called_before {
            // What a backend may have kept from an earlier transaction is no more than that.
            insert(&a, "'elsewhere', 'elsewhere'").await;
        }
        step(&b, "b0").await;
        begin_with_snapshot(&a, level).await;
        rotate(&db).await;
        step(&b, "b1").await;
        step(&a, "a1").await;
        run(&a, "COMMIT").await;
        step(&b, "b2").await;

        let placed = |lane_seq: i64, slot: i64, args: &str| json!({"lane_seq": lane_seq, "slot": slot, "gen": slot, "args": args});
        let expected = [placed(1, 0, "b0"), placed(2, 1, "b1"), placed(3, 1, "a1"), placed(4, 1, "b2")];
        let lanes =
            "(SELECT lane_seq, ready_slot AS slot, ready_generation AS gen, args FROM awa.ready_entries WHERE queue = 'ring')";
        assert_same_rows(&what, &expected, &rows(&b, lanes, &[]).await);
        assert_lanes_are_whole(&b, "awa", &what).await;
        let worker = Worker::builder().queue("ring").kind("step").start(&db).await;
        worker.wait_for(4).await;
        let order: Vec<_> = worker.stop().await.into_iter().map(|job| job.args).collect();
        assert_eq!(order, ["b0", "b1", "a1", "b2"], "{what}");
    }
}

/// The ring turns between two calls of one transaction, on the same lane and on others.
#[tokio::test(flavor = "multi_thread")]
async fn the_ring_turns_within_a_transaction() {
    for level in LEVELS {
        let db = attached().await;
        let (a, b) = (db.connect().await, db.connect().await);
        begin_with_snapshot(&a, level).await;
        step(&a, "a1").await;
        rotate(&db).await;
        insert(&b, "'step', 'other', '\"b1\"'").await;
        step(&a, "a2").await;
        insert(&a, "'step', 'other', '\"a3\"'").await;
        run(&a, "SAVEPOINT s").await;
        step(&a, "lost").await;
        run(&a, "ROLLBACK TO s").await;
        step(&a, "a4").await;
        run(&a, "COMMIT").await;
        step(&b, "b5").await;
        insert(&b, "'step', 'other', '\"b6\"'").await;
        assert_lanes_are_whole(&b, "awa", level).await;
        let backwards = "(SELECT queue FROM (SELECT queue, ready_generation AS gen, lag(ready_generation) OVER (PARTITION BY queue ORDER BY lane_seq) AS before
                            FROM awa.ready_entries) AS e WHERE gen < before)";
        assert_eq!(rows(&b, backwards, &[]).await, Vec::<Value>::new(), "later positions are in later slots, {level}");
        let worker = Worker::builder().queue("ring").queue("other").kind("step").start(&db).await;
        worker.wait_for(7).await;
        assert_eq!(worker.stop().await.len(), 7, "{level}");
    }
}

/// A lane that another session created after the snapshot is there, although the snapshot does not show it.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_created_after_the_snapshot_are_used() {
    for level in LEVELS {
        let db = attached().await;
        let (a, b) = (db.connect().await, db.connect().await);
        begin_with_snapshot(&a, level).await;
        step(&b, "b1").await;
        step(&a, "a1").await;
        step(&a, "a2").await;
        run(&a, "COMMIT").await;
        step(&b, "b2").await;
        assert_eq!(ready_args(&b).await, json!(["b1", "a1", "a2", "b2"]), "{level}");
        let lanes = rows(&b, "awa.queue_enqueue_heads", &["seq_name"]).await;
        assert_eq!(lanes.len(), 1, "{level}: {lanes:?}");
        assert_lanes_are_whole(&b, "awa", level).await;
    }
}

/// A claim that was committed since the snapshot is refused as PostgreSQL refuses such writes.
#[tokio::test(flavor = "multi_thread")]
async fn claims_committed_after_the_snapshot_are_refused() {
    const UNIQUE: &str = "'once', p_unique_key => 'key', p_unique_states => '11111111'";
    for (level, allowed) in LEVELS.into_iter().zip([&["23505"][..], &["23505", "40001"], &["23505", "40001"]]) {
        let db = attached().await;
        let (a, b) = (db.connect().await, db.connect().await);
        begin_with_snapshot(&a, level).await;
        insert(&b, UNIQUE).await;
        let refused = failure(try_insert(&a, UNIQUE).await);
        assert!(allowed.contains(&refused.sqlstate.as_str()), "{level}: {refused:?}");
        run(&a, "ROLLBACK").await;
        assert_eq!(rows(&b, "(SELECT FROM awa.jobs)", &[]).await.len(), 1);
    }
}

/// A key whose holder is not decided yet is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn an_undecided_claim_is_waited_for() {
    const UNIQUE: &str = "'once', p_unique_key => 'key', p_unique_states => '11111111'";
    for end in ["COMMIT", "ROLLBACK"] {
        let db = attached().await;
        let (a, b) = (db.connect().await, db.connect().await);
        let pid = backend_pid(&b).await;
        run(&a, "BEGIN").await;
        insert(&a, UNIQUE).await;
        let waiting = tokio::spawn(async move { try_insert(&b, UNIQUE).await });
        wait_until_blocked(&a, pid).await;
        run(&a, end).await;
        let answer = within(end, waiting).await.unwrap();
        if end == "COMMIT" {
            let refused = failure(answer);
            assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"));
        } else {
            answer.expect("a free key");
        }
        assert_eq!(rows(&a, "(SELECT FROM awa.jobs)", &[]).await.len(), 1, "{end}");
    }
}
