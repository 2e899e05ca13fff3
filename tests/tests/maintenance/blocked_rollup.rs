//! Rollups that are in the way of others: they end at the first slot that is blocked, and stand back while old snapshots are kept.

use awa_ingest_tests::wait_until;

use crate::actor::ROWS;
use crate::blocked::{assert_blocks, cluster, hold, release};
use crate::stage::{Stage, Step, assert_step, of_ring, run};

/// Slots 1 to 3 with a count to fold each; slot 0 is the oldest, and empty.
async fn stage() -> Stage {
    let stage = Stage::on(cluster()).await;
    stage.turn("queue").await;
    for _ in 0..3 {
        stage.play(ROWS, &["fail", "cancel"]).await;
        stage.turn("queue").await;
    }
    stage
}

fn outcomes(steps: &[Step]) -> Vec<(Option<i32>, &str, Option<i64>)> {
    of_ring(steps, "rollup").into_iter().map(|step| (step.slot, &*step.outcome, step.rows)).collect()
}

/// Counts of a slot that are not folded yet, and those that are.
async fn counts(stage: &Stage, slot: i32) -> (i64, i64) {
    let pending = format!("SELECT COALESCE(sum(terminal_delta), 0)::bigint FROM awa.queue_terminal_count_deltas_{slot}");
    let live = format!(
        "SELECT COALESCE(sum(live_terminal_count), 0)::bigint FROM awa.queue_terminal_live_counts WHERE ready_slot = {slot}"
    );
    (stage.value(&pending).await, stage.value(&live).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_at_the_first_blocked_slot() {
    let stage = stage().await;
    hold(&stage, "LOCK TABLE awa.queue_terminal_count_deltas_2 IN ROW EXCLUSIVE MODE").await;
    let steps = stage.prune().await;
    assert_eq!(outcomes(&steps), [(Some(1), "rolled", Some(2)), (Some(2), "blocked", None)]);
    for (slot, expected) in [(1, (0, 2)), (2, (2, 0)), (3, (2, 0))] {
        assert_eq!(counts(&stage, slot).await, expected, "slot {slot}");
    }
    release(&stage).await;
    assert_eq!(outcomes(&stage.prune().await), [(Some(2), "rolled", Some(2)), (Some(3), "rolled", Some(2))]);
    assert_eq!(stage.counts(ROWS).await.terminal, 6);
    assert_eq!(outcomes(&stage.prune().await), [(None, "noop", None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_can_be_blocked() {
    let stage = stage().await;
    // Counts for the same place come once more, so that there is a row to be in the way.
    stage
        .run(
            "INSERT INTO awa.queue_terminal_live_counts (ready_slot, queue, priority, enqueue_shard, counter_bucket, live_terminal_count)
             SELECT ready_slot, queue, priority, enqueue_shard, counter_bucket, 0 FROM awa.queue_terminal_count_deltas_1",
        )
        .await;
    for statements in [
        "SELECT FROM awa.queue_ring_state FOR UPDATE",
        "SELECT FROM awa.queue_ring_slots WHERE slot = 1 FOR UPDATE",
        "LOCK TABLE awa.queue_terminal_count_deltas_1 IN ROW EXCLUSIVE MODE",
        "SELECT FROM awa.queue_terminal_live_counts WHERE ready_slot = 1 FOR UPDATE",
        "LOCK TABLE awa.queue_terminal_live_counts IN SHARE MODE",
    ] {
        assert_blocks(&stage, "rollup", 1, statements).await;
    }
    assert_eq!(outcomes(&stage.prune().await).len(), 3);
    assert_eq!((counts(&stage, 1).await, stage.counts(ROWS).await.terminal), ((0, 2), 6));
}

/// Counts that cancel out leave no row, and those below zero make none.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_added_up() {
    let stage = stage().await;
    let delta = |bucket: i32, delta: i32| {
        format!(
            "INSERT INTO awa.queue_terminal_count_deltas
            (ready_slot, ready_generation, queue, priority, enqueue_shard, counter_bucket, terminal_delta)
            VALUES (1, 1, 'rows', 2, 0, {bucket}, {delta})"
        )
    };
    for (bucket, n) in [(201, 5), (201, -2), (202, 3), (202, -3), (203, -1)] {
        stage.run(&delta(bucket, n)).await;
    }
    stage.prune().await;
    for (bucket, n) in [(201, -1), (201, 4)] {
        stage.run(&delta(bucket, n)).await;
    }
    stage.prune().await;
    let sum = "SELECT COALESCE(sum(live_terminal_count), -1)::bigint FROM awa.queue_terminal_live_counts WHERE counter_bucket =";
    let mut found = Vec::new();
    for bucket in 201..=203 {
        found.push(stage.value::<i64>(&format!("{sum} {bucket}")).await);
    }
    assert_eq!(found, [6, -1, -1], "-1 for no row");
}

/// Counts of jobs of an older generation, whose producer took a whole turn of the ring.
#[tokio::test(flavor = "multi_thread")]
async fn counts_of_all_generations_are_folded() {
    let stage = stage().await;
    stage
        .run("UPDATE awa.queue_terminal_count_deltas SET ready_generation = -15 WHERE ready_slot = 1 AND counter_bucket = 1")
        .await;
    assert_eq!(stage.counts(ROWS).await.terminal, 6);
    assert_eq!(outcomes(&stage.prune().await)[0], (Some(1), "rolled", Some(2)));
    assert_eq!((counts(&stage, 1).await, stage.counts(ROWS).await.terminal), ((0, 2), 6));
}

/// A session that keeps an old snapshot, or has written and not ended, but not the caller itself.
#[tokio::test(flavor = "multi_thread")]
async fn it_stands_back_from_old_snapshots() {
    let stage = stage().await;
    let pinning = stage.db.connect().await;
    for statements in ["BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT", "BEGIN; SELECT pg_current_xact_id()"] {
        run(&pinning, statements).await;
        let pinned =
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()";
        wait_until(&stage.client, pinned).await;
        let before = stage.dump().await;
        let steps = stage.prune().await;
        assert_step(&steps, "rollup", Some(1), ("skipped_pinned", None));
        stage.assert_unchanged(&before, statements).await;
        run(&pinning, "ROLLBACK").await;
    }
    stage.run("BEGIN; SELECT pg_current_xact_id(); DECLARE open CURSOR FOR SELECT FROM awa.leases; FETCH open").await;
    assert_eq!(outcomes(&stage.prune().await).len(), 3, "not from its own");
    stage.run("COMMIT").await;
}

/// A session in another database pins nothing here.
#[tokio::test(flavor = "multi_thread")]
async fn it_does_not_stand_back_from_other_databases() {
    let stage = stage().await;
    let url = stage.db.cluster().url("postgres", "postgres");
    let (elsewhere, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
    let connection = tokio::spawn(connection);
    run(&elsewhere, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()").await;
    assert_step(&stage.prune().await[..4], "rollup", Some(1), ("rolled", None));
    drop(elsewhere);
    connection.await.expect("the connection's task").expect("the connection");
}
