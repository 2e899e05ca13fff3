//! What a prune takes away, keeps and counts, on slots that real awa workers filled.

use awa_ingest_tests::rows;
use serde_json::json;

use crate::actor::{BATCHES, ROWS};
use crate::stage::{RINGS, Stage, assert_step, only};

const MIX: [&str; 8] = ["complete", "fail", "complete", "cancel", "complete", "fail", "cancel", "complete"];

/// Prunes until the oldest slots of all rings are empty.
async fn prune_all(stage: &Stage) {
    for _ in 0..20 {
        let before = (stage.counts(ROWS).await.terminal, stage.counts(BATCHES).await.terminal);
        let steps = stage.prune().await;
        assert_eq!((stage.counts(ROWS).await.terminal, stage.counts(BATCHES).await.terminal), before, "{steps:#?}");
        if RINGS.iter().all(|ring| only(&steps, ring).outcome == "noop") {
            return;
        }
    }
    panic!("the oldest slots are never empty");
}

/// Ids of the failed jobs that awa shows.
async fn failed(stage: &Stage) -> Vec<i64> {
    stage.value("SELECT COALESCE(array_agg(id ORDER BY id), '{}') FROM awa.jobs WHERE state = 'failed'").await
}

/// Jobs are worked in one slot after the other; pruned, all of them are free for another lap.
async fn go_round(stage: &Stage, slots: usize) {
    let (mut terminal, mut failing) = (0, Vec::new());
    for lap in 0..2 * slots + 1 {
        // Not in every slot: a worker takes its time to start and end.
        if lap % 8 == 0 {
            let ids = [stage.enqueue(ROWS, &MIX).await, stage.enqueue(BATCHES, &MIX).await];
            stage.work(2 * MIX.len()).await;
            terminal += MIX.len() as i64;
            failing.extend(ids.iter().flat_map(|ids| [ids[1], ids[5]]));
        }
        let before = (stage.counts(ROWS).await, stage.counts(BATCHES).await);
        assert_eq!((before.0.terminal, before.1.terminal), (terminal, terminal), "lap {lap}");
        stage.turn_all().await;
        prune_all(stage).await;
        let after = (stage.counts(ROWS).await, stage.counts(BATCHES).await);
        assert_eq!(after, before, "awa counts exactly, lap {lap}");
        assert_eq!((after.0.available, after.0.running, after.0.pruned_failed), (0, 0, 0), "lap {lap}");
    }
    assert_eq!(failed(stage).await, failing, "failed jobs stay through all laps");
    let state = stage.value::<i64>(&format!("SELECT generation FROM {}.queue_ring_state", stage.schema)).await;
    assert_eq!(state, 2 * slots as i64 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_of_all_rings_come_free() {
    go_round(&Stage::new().await, 16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_come_free_in_another_schema() {
    go_round(&Stage::elsewhere("elsewhere").await, 4).await;
}

/// What is emptied, and with which rows the slot was filled: every partition had some.
#[tokio::test(flavor = "multi_thread")]
async fn all_partitions_are_emptied() {
    let stage = Stage::new().await;
    stage.enqueue(ROWS, &MIX).await;
    let ids = stage.enqueue(BATCHES, &MIX).await;
    stage.work(2 * MIX.len()).await;
    // Takes away a job that is kept in a batch, and one that is a row.
    stage.run(&format!("DELETE FROM awa.jobs WHERE id IN ({}, {})", ids[0], ids[3])).await;
    stage.run("UPDATE awa.claim_ring_slots SET rescue_cursor_job_id = 7, deadline_cursor_job_id = 8 WHERE slot IN (0, 1)").await;
    for table in ["ready_entries_0", "done_entries_0", "receipt_completion_batches_0", "receipt_completion_tombstones_0"] {
        assert!(!rows(&stage.client, &format!("awa.{table}"), &[]).await.is_empty(), "{table} has rows");
    }
    stage.turn_all().await;
    prune_all(&stage).await;
    for ring in RINGS {
        assert_eq!(stage.rows_of_slot(ring, 0).await, 0, "{ring}");
    }
    let cursors = "(SELECT slot, rescue_cursor_job_id AS rescue, deadline_cursor_job_id AS deadline FROM awa.claim_ring_slots
                    WHERE slot < 2)";
    let expected = [json!({"slot": 0, "rescue": 0, "deadline": 0}), json!({"slot": 1, "rescue": 7, "deadline": 8})];
    assert_eq!(rows(&stage.client, cursors, &[]).await, expected, "the rescue begins anew, in that slot only");
    assert_eq!(stage.rollups().await, [(BATCHES.into(), 4, 0), (ROWS.into(), 6, 0)], "what was deleted is not counted");
    assert_eq!(stage.counts(BATCHES).await.terminal, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_is_counted_once() {
    let stage = Stage::new().await;
    stage.run("SET awa_ingest.failed_retention = 0").await;
    for lap in 1..=2 {
        stage.enqueue(ROWS, &MIX).await;
        stage.enqueue(BATCHES, &MIX[..3]).await;
        stage.work(MIX.len() + 3).await;
        stage.seal_all().await;
        prune_all(&stage).await;
        assert_eq!(stage.rollups().await, [(BATCHES.into(), 2 * lap, lap), (ROWS.into(), 6 * lap, 2 * lap)], "lap {lap}");
        let counts = stage.counts(ROWS).await;
        assert_eq!((counts.terminal, counts.pruned_failed), (8 * lap, 2 * lap), "lap {lap}");
        assert_eq!(failed(&stage).await, [] as [i64; 0], "lap {lap}");
    }
}

/// A job is shown with all that it had, also what its ready row had, and awa retries it.
#[tokio::test(flavor = "multi_thread")]
async fn failed_jobs_are_carried_and_can_be_retried() {
    let stage = Stage::new().await;
    let ids = stage.play(ROWS, &["fail", "complete", "fail"]).await;
    let shown = format!("(SELECT * FROM awa.jobs WHERE id = ANY ('{{{}, {}}}'))", ids[0], ids[2]);
    let before = rows(&stage.client, &shown, &[]).await;
    assert_eq!(before.len(), 2);
    for slot in [0, 15, 14] {
        stage.seal("queue").await;
        let steps = stage.prune().await;
        assert_step(&steps, "queue", Some(slot), ("pruned", None));
        assert_eq!(only(&steps, "queue").rows, Some(2), "both are carried on");
        assert_eq!(rows(&stage.client, &shown, &[]).await, before, "after the prune of slot {slot}");
        let counts = stage.counts(ROWS).await;
        assert_eq!((counts.terminal, counts.pruned_failed), (3, 0), "after the prune of slot {slot}");
        let deltas = "SELECT sum(terminal_delta)::bigint FROM awa.queue_terminal_count_deltas";
        assert_eq!(stage.value::<i64>(deltas).await, 2, "counts go with them");
    }
    assert_eq!(stage.rollups().await, [(ROWS.into(), 1, 0)]);

    let retried = awa_model::admin::retry(&stage.pool, ids[2]).await.expect("awa's retry");
    assert_eq!(retried.map(|job| (job.id, job.args["text"].clone())), Some((ids[2], json!("kept"))));
    assert_eq!((stage.counts(ROWS).await.available, stage.counts(ROWS).await.terminal), (1, 2));
    assert_eq!(stage.work(1).await, [ids[2]]);
    assert_eq!(stage.counts(ROWS).await.terminal, 3);
    stage.seal("queue").await;
    assert_step(&stage.prune().await, "queue", Some(13), ("pruned", None));
    assert_eq!((failed(&stage).await, stage.counts(ROWS).await.terminal), (vec![ids[0], ids[2]], 3));
}

/// Counts of carried rows that were folded while they lay in their slot.
#[tokio::test(flavor = "multi_thread")]
async fn counts_stay_exact_through_carry_and_rollup() {
    let stage = Stage::new().await;
    // An empty slot that is the oldest: the first to be looked at, so that the next is folded before it is pruned.
    stage.turn_all().await;
    let ids = stage.play(ROWS, &["fail", "cancel", "fail"]).await;
    stage.turn_all().await;
    let steps = stage.prune().await;
    assert_step(&steps, "queue", None, ("noop", None));
    assert_step(&steps, "rollup", Some(1), ("rolled", None));
    assert_eq!(stage.counts(ROWS).await.terminal, 3);
    let live = "SELECT COALESCE(sum(live_terminal_count), 0)::bigint FROM awa.queue_terminal_live_counts";
    assert_eq!(stage.value::<i64>(live).await, 3);

    // Round, until slot 1 is the oldest.
    for _ in 0..14 {
        assert!(stage.turn("queue").await);
    }
    assert_eq!(
        (stage.value::<i32>("SELECT current_slot FROM awa.queue_ring_state").await, stage.counts(ROWS).await.terminal),
        (0, 3)
    );
    let steps = stage.prune().await;
    assert_step(&steps, "queue", Some(1), ("pruned", None));
    assert_eq!((stage.value::<i64>(live).await, stage.counts(ROWS).await.terminal), (0, 3));
    assert_eq!((failed(&stage).await, stage.rollups().await), (vec![ids[0], ids[2]], vec![(ROWS.into(), 1, 0)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_retention_is_that_of_the_setting() {
    let stage = Stage::new().await;
    let ids = stage.play(ROWS, &["fail", "fail", "complete"]).await;
    stage.run(&format!("UPDATE awa.done_entries SET finalized_at = now() - interval '3 hours' WHERE job_id = {}", ids[0])).await;
    stage.seal("queue").await;
    stage.run("SET awa_ingest.failed_retention = '4h'").await;
    assert_eq!(only(&stage.prune().await, "queue").rows, Some(2));
    stage.seal("queue").await;
    stage.run("SET awa_ingest.failed_retention = '2h'").await;
    assert_eq!(only(&stage.prune().await, "queue").rows, Some(1));
    assert_eq!((failed(&stage).await, stage.rollups().await), (vec![ids[1]], vec![(ROWS.into(), 1, 1)]));

    // The clock goes on by three hours.
    stage.seal("queue").await;
    stage.run("SET awa_ingest.clock_offset = '1h'").await;
    assert_eq!(only(&stage.prune().await, "queue").rows, Some(1), "not yet");
    stage.seal("queue").await;
    stage.run("SET awa_ingest.clock_offset = '3h'").await;
    let steps = stage.prune().await;
    assert_step(&steps, "queue", Some(13), ("pruned", None));
    assert_eq!(only(&steps, "queue").rows, Some(0));
    assert_eq!((failed(&stage).await, stage.rollups().await), (vec![], vec![(ROWS.into(), 1, 2)]));
    let counts = stage.counts(ROWS).await;
    assert_eq!((counts.terminal, counts.pruned_failed), (3, 2));
}

/// The setting's default is awa's own.
#[tokio::test(flavor = "multi_thread")]
async fn by_default_failed_jobs_stay_for_three_days() {
    let stage = Stage::new().await;
    let ids = stage.play(ROWS, &["fail", "fail"]).await;
    let age =
        |id: i64, age: &str| format!("UPDATE awa.done_entries SET finalized_at = now() - interval '{age}' WHERE job_id = {id}");
    stage.run(&age(ids[0], "71 hours 59 minutes")).await;
    stage.run(&age(ids[1], "72 hours 1 minute")).await;
    stage.turn("queue").await;
    assert_eq!(only(&stage.prune().await, "queue").rows, Some(1));
    assert_eq!(failed(&stage).await, [ids[0]]);
}

/// A current slot whose row is missing is no place to carry anything to: the prune fails, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_carried_to_nowhere() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["fail", "complete"]).await;
    stage.turn("queue").await;
    stage.run("DELETE FROM awa.queue_ring_slots WHERE slot = 1").await;
    let steps = stage.prune().await;
    let step = only(&steps, "queue");
    assert_eq!((step.slot, step.ended(), step.sqlstate.as_deref()), (Some(0), ("failed", None), Some("23502")), "{steps:#?}");
    assert_eq!((failed(&stage).await.len(), stage.counts(ROWS).await.terminal), (1, 2));
}

/// A failed job that a trigger keeps from being carried on would go with its slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_cannot_lose_a_failed_job() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["fail", "fail"]).await;
    stage.turn_all().await;
    stage
        .run(
            "CREATE FUNCTION awa.leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
             CREATE TRIGGER leave_out BEFORE INSERT ON awa.done_entries FOR EACH ROW EXECUTE FUNCTION awa.leave_out()",
        )
        .await;
    let before = failed(&stage).await;
    let steps = stage.prune().await;
    let step = only(&steps, "queue");
    assert_eq!((step.outcome.as_str(), step.sqlstate.as_deref()), ("failed", Some("55000")), "{step:?}");
    assert!(step.error.as_deref().is_some_and(|error| error.contains("2 rows")), "{step:?}");
    assert_eq!((before.len(), failed(&stage).await), (2, before));
}
