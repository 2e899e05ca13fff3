//! A lock that is not to be had, at every step of a prune: it gives up at once, and everything is as before.

use std::sync::Arc;

use awa_ingest_tests::Cluster;
use tokio_postgres::Client;

use crate::actor::ROWS;
use crate::stage::{Stage, assert_step, children, maintain, only, run};

/// A server whose log is this test's own. Locks are held by prepared transactions: no session stands behind them, that a rollup would
/// rather not disturb.
pub fn cluster() -> Arc<Cluster> {
    Cluster::start(&[("max_prepared_transactions", "5")])
}

/// Holds what `statements` lock.
pub async fn hold(stage: &Stage, statements: &str) {
    stage.run(&format!("BEGIN; {statements}; PREPARE TRANSACTION 'holder'")).await;
}

/// Lets it go, without effect.
pub async fn release(stage: &Stage) {
    stage.run("ROLLBACK PREPARED 'holder'").await;
}

/// Lines that tell of something gone wrong.
pub fn complaints(stage: &Stage) -> Vec<String> {
    let log = stage.db.cluster().log();
    let is_complaint = |line: &&str| ["ERROR:", "FATAL:", "PANIC:", "WARNING:"].iter().any(|level| line.contains(level));
    log.lines().filter(is_complaint).map(str::to_owned).collect()
}

/// Holds `statements` while a prune runs in a transaction: the step of `ring` is blocked, and nothing is left of it, not even locks.
pub async fn assert_blocks(stage: &Stage, ring: &str, slot: i32, statements: &str) {
    let before = stage.dump().await;
    hold(stage, statements).await;
    let logged = complaints(stage);
    let session = stage.db.connect().await;
    run(&session, "BEGIN").await;
    let steps = maintain(&session, "prune").await;
    assert_step(&steps, ring, Some(slot), ("blocked", None));
    let step = only(&steps, ring);
    assert_eq!((step.rows, &step.sqlstate, &step.error), (None, &None, &None), "{statements}");
    let locks =
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock' AND locktype = 'relation'
                 AND relation::regclass::text LIKE 'awa.%'";
    assert_eq!(session.query_one(locks, &[]).await.expect(locks).get::<_, i64>(0), 0, "{statements}");
    run(&session, "COMMIT").await;
    assert_eq!(complaints(stage), logged, "{statements}");
    release(stage).await;
    stage.assert_unchanged(&before, statements).await;
}

/// Waits that the slot's partitions are emptied in the end.
async fn assert_free(stage: &Stage, ring: &str, slot: i32) {
    assert_step(&stage.prune().await, ring, Some(slot), ("pruned", None));
    assert_eq!(stage.rows_of_slot(ring, slot).await, 0);
}

/// Slot 0 of the queue ring can be pruned, and has a failed row to carry. The session keeps rollups away, so that the prune is all that
/// happens.
async fn queue_stage() -> (Stage, Client) {
    let stage = Stage::on(cluster()).await;
    stage.play(ROWS, &["complete", "fail", "complete"]).await;
    stage.turn("queue").await;
    stage.run("INSERT INTO awa.queue_terminal_rollups (queue, priority) VALUES ('rows', 2)").await;
    stage
        .run(
            "INSERT INTO awa.queue_terminal_live_counts (ready_slot, queue, priority, enqueue_shard, counter_bucket, live_terminal_count)
             VALUES (0, 'rows', 2, 0, 200, 0)",
        )
        .await;
    let pinning = stage.db.connect().await;
    run(&pinning, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT").await;
    (stage, pinning)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_ring() {
    let (stage, _pinning) = queue_stage().await;
    let mut holders = vec![
        "SELECT FROM awa.queue_ring_state FOR UPDATE".to_owned(),
        "SELECT FROM awa.queue_ring_slots WHERE slot = 0 FOR UPDATE".into(),
        // Where the failed row goes, and its count.
        "LOCK TABLE awa.done_entries_1 IN SHARE MODE".into(),
        "LOCK TABLE awa.queue_terminal_count_deltas_1 IN SHARE MODE".into(),
        // Behind the locks on the partitions.
        "SELECT FROM awa.queue_terminal_rollups WHERE queue = 'rows' FOR UPDATE".into(),
        "LOCK TABLE awa.queue_terminal_rollups IN SHARE MODE".into(),
        "SELECT FROM awa.queue_terminal_live_counts WHERE ready_slot = 0 AND counter_bucket = 200 FOR UPDATE".into(),
    ];
    holders.extend(children("queue").iter().map(|table| format!("LOCK TABLE awa.{table}_0 IN ROW EXCLUSIVE MODE")));
    // Those that a look at the slot meets.
    for table in ["ready_entries_0", "leases_3", "lease_claims_2", "queue_claim_heads"] {
        holders.push(format!("LOCK TABLE awa.{table} IN ACCESS EXCLUSIVE MODE"));
    }
    for statements in holders {
        assert_blocks(&stage, "queue", 0, &statements).await;
    }
    assert_free(&stage, "queue", 0).await;
    assert_eq!((stage.rollups().await, stage.counts(ROWS).await.terminal), (vec![(ROWS.into(), 2, 0)], 3));
}

/// A row of the rollup that another transaction has just made: there is nothing to lock but that transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_row_of_the_rollup() {
    let (stage, _pinning) = queue_stage().await;
    stage.run("DELETE FROM awa.queue_terminal_rollups").await;
    let insert = "INSERT INTO awa.queue_terminal_rollups (queue, priority) VALUES ('rows', 2)";
    assert_blocks(&stage, "queue", 0, insert).await;
    assert_free(&stage, "queue", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_ring() {
    let stage = Stage::on(cluster()).await;
    stage.play(ROWS, &["complete", "complete"]).await;
    stage.turn("claim").await;
    let mut holders = vec![
        "SELECT FROM awa.claim_ring_state FOR UPDATE".to_owned(),
        "SELECT FROM awa.claim_ring_slots WHERE slot = 0 FOR UPDATE".into(),
    ];
    for table in children("claim") {
        holders.push(format!("LOCK TABLE awa.{table}_0 IN ROW EXCLUSIVE MODE"));
        holders.push(format!("LOCK TABLE awa.{table}_0 IN ACCESS EXCLUSIVE MODE"));
    }
    for statements in holders {
        assert_blocks(&stage, "claim", 0, &statements).await;
    }
    assert_free(&stage, "claim", 0).await;
}

/// A lease goes with its job, so that nothing is ever left there to be emptied: a look is all that can be blocked.
#[tokio::test(flavor = "multi_thread")]
async fn the_lease_ring() {
    let stage = Stage::on(cluster()).await;
    stage.turn("lease").await;
    assert_blocks(&stage, "lease", 0, "LOCK TABLE awa.leases_0 IN ACCESS EXCLUSIVE MODE").await;
    assert_step(&stage.prune().await, "lease", None, ("noop", None));
}
