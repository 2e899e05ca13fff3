//! What keeps a slot, each by itself.

use awa_ingest_tests::{jobs, rows};
use awa_model::InsertParams;

use crate::actor::{BATCHES, ROWS};
use crate::stage::{RINGS, Stage, assert_step, job, maintain, only, run};

/// A lease of slot 0, in lease slot 0.
const LEASE: &str =
    "INSERT INTO awa.leases (lease_slot, lease_generation, ready_slot, ready_generation, job_id, queue, priority, lane_seq)
                     VALUES (0, 0, 0, 0, 1, 'rows', 2, 1)";

/// Files of a ring's partitions of slot 0: TRUNCATE gives them new ones.
async fn files(stage: &Stage, ring: &str) -> Vec<serde_json::Value> {
    let tables: Vec<String> = crate::stage::children(ring).iter().map(|table| format!("'awa.{table}_0'::regclass")).collect();
    let sql = format!("(SELECT pg_relation_filenode(t) FROM unnest(ARRAY[{}]) AS t)", tables.join(","));
    rows(&stage.client, &sql, &[]).await
}

/// The prune leaves everything as it was, in all rings.
async fn assert_nothing_changes(stage: &Stage) {
    let (before, counts) = (stage.dump().await, stage.counts(ROWS).await);
    let steps = stage.prune().await;
    stage.assert_unchanged(&before, &format!("after {steps:?}")).await;
    assert_eq!(stage.counts(ROWS).await, counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn rings_that_never_turned_have_nothing_to_prune() {
    let stage = Stage::new().await;
    for filled in [false, true] {
        if filled {
            stage.play(ROWS, &["complete", "fail", "complete"]).await;
        }
        let steps = stage.prune().await;
        for ring in RINGS {
            assert_step(&steps, ring, None, ("noop", None));
        }
        assert_step(&steps, "rollup", None, ("noop", None));
        assert_nothing_changes(&stage).await;
    }
}

/// An empty slot is left alone: a prune every second must not write.
#[tokio::test(flavor = "multi_thread")]
async fn empty_slots_keep_their_files() {
    let stage = Stage::new().await;
    stage.turn_all().await;
    for ring in RINGS {
        let before = files(&stage, ring).await;
        let steps = stage.prune().await;
        assert_step(&steps, ring, None, ("noop", None));
        assert_eq!(files(&stage, ring).await, before, "{ring}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_current_slot_is_never_touched() {
    let stage = Stage::new().await;
    stage.turn_all().await;
    stage.play(ROWS, &["complete", "fail"]).await;
    let steps = stage.prune().await;
    for ring in RINGS {
        assert_step(&steps, ring, None, ("noop", None));
    }
    assert_nothing_changes(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete", "complete"]).await;
    let id = stage.enqueue(ROWS, &["complete"]).await[0];
    stage.turn_all().await;
    let steps = stage.prune().await;
    assert_step(&steps, "queue", Some(0), ("skipped_active", Some("pending")));
    assert_step(&steps, "claim", Some(0), ("pruned", None));
    assert_nothing_changes(&stage).await;
    assert_eq!(stage.work(1).await, [id]);
    assert_step(&stage.prune().await, "queue", Some(0), ("pruned", None));
    assert_eq!(stage.counts(ROWS).await.terminal, 3);
}

/// Of two lanes, the one that waits keeps the slot of both.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_in_another_lane() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete", "complete"]).await;
    stage.enqueue("nobody_works_it", &["complete"]).await;
    stage.turn_all().await;
    assert_step(&stage.prune().await, "queue", Some(0), ("skipped_active", Some("pending")));
    assert_nothing_changes(&stage).await;
}

/// Without its claim head nobody knows what of a lane was claimed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_without_a_claim_head() {
    let stage = Stage::new().await;
    stage.enqueue(ROWS, &["complete"]).await;
    stage.turn_all().await;
    stage.run("CREATE TABLE kept AS TABLE awa.queue_claim_heads; DELETE FROM awa.queue_claim_heads").await;
    assert_step(&stage.prune().await, "queue", Some(0), ("skipped_active", Some("pending")));
    assert_nothing_changes(&stage).await;
    stage.run("INSERT INTO awa.queue_claim_heads TABLE kept").await;
    stage.work(1).await;
    assert_step(&stage.prune().await, "queue", Some(0), ("pruned", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_open() {
    for queue in [ROWS, BATCHES] {
        let stage = Stage::new().await;
        let actor = stage.actor().await;
        stage.enqueue(queue, &["complete", "hold", "complete"]).await;
        actor.wait_for(3).await;
        stage.turn_all().await;
        let steps = stage.prune().await;
        assert_step(&steps, "queue", Some(0), ("skipped_active", Some("unclosed_claims")));
        assert_step(&steps, "claim", Some(0), ("skipped_active", Some("open_claims")));
        assert_step(&steps, "lease", None, ("noop", None));
        actor.stop().await;
        let steps = stage.prune().await;
        assert_step(&steps, "queue", Some(0), ("pruned", None));
        assert_step(&steps, "claim", Some(0), ("pruned", None));
        assert_eq!((stage.counts(queue).await.terminal, stage.counts(queue).await.running), (3, 0), "{queue}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_with_a_lease() {
    let stage = Stage::new().await;
    let actor = stage.actor().await;
    stage.enqueue(BATCHES, &["complete", "lease"]).await;
    actor.wait_for(2).await;
    stage.turn_all().await;
    let steps = stage.prune().await;
    assert_step(&steps, "queue", Some(0), ("skipped_active", Some("leases")));
    assert_step(&steps, "lease", Some(0), ("skipped_active", Some("leases")));
    assert_eq!(stage.counts(BATCHES).await.running, 1);
    actor.stop().await;
    let steps = stage.prune().await;
    assert_step(&steps, "lease", None, ("noop", None));
    assert_eq!((stage.counts(BATCHES).await.terminal, stage.counts(BATCHES).await.running), (2, 0));
}

/// A lease, and nothing else; one of another slot does not count.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_alone() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete"]).await;
    stage.run(LEASE).await;
    stage.turn("queue").await;
    let steps = stage.prune().await;
    assert_step(&steps, "queue", Some(0), ("skipped_active", Some("leases")));
    assert_step(&steps, "lease", None, ("noop", None));
    assert_nothing_changes(&stage).await;
    stage.run("UPDATE awa.leases SET ready_slot = 1").await;
    assert_step(&stage.prune().await, "queue", Some(0), ("pruned", None));
}

/// A producer that takes so long that the ring goes round: its jobs are of an older generation than the slot that they lie in. awa works
/// them, and until then, and while they run, nothing may take them away.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_an_older_generation() {
    for end in ["hold", "lease"] {
        let stage = Stage::new().await;
        let producer = stage.db.connect().await;
        run(&producer, "BEGIN").await;
        // awa's own function: this extension's ways in refuse the commit.
        let InsertParams { kind, args, opts, .. } = job(ROWS, end);
        let sql = "SELECT (awa.insert_job_compat($1, $2, $3, p_max_attempts => $4)).id";
        let id: i64 = producer.query_one(sql, &[&kind, &opts.queue, &args, &opts.max_attempts]).await.expect(sql).get(0);
        for _ in 0..16 {
            assert!(stage.turn("queue").await, "what is not committed keeps no slot");
        }
        run(&producer, "COMMIT").await;
        stage.seal("queue").await;
        let slot = "SELECT ready_slot || ' ' || ready_generation FROM awa.ready_entries";
        assert_eq!(stage.value::<String>(slot).await, "0 0");
        assert_eq!(stage.value::<i64>("SELECT generation FROM awa.queue_ring_slots WHERE slot = 0").await, 16);
        assert_step(&stage.prune().await, "queue", Some(0), ("skipped_active", Some("pending")));

        let actor = stage.actor().await;
        actor.wait_for(1).await;
        let reason = if end == "lease" { "leases" } else { "unclosed_claims" };
        assert_step(&stage.prune().await, "queue", Some(0), ("skipped_active", Some(reason)));
        assert_eq!(actor.stop().await[0].id, id);
        assert_step(&stage.prune().await, "queue", Some(0), ("pruned", None));
        assert_eq!((stage.counts(ROWS).await.terminal, stage.rollups().await), (1, vec![(ROWS.into(), 1, 0)]));
    }
}

/// Counts that nothing stands behind go with the slot, those of others stay.
#[tokio::test(flavor = "multi_thread")]
async fn orphaned_counts_are_dropped() {
    let stage = Stage::new().await;
    stage
        .run(
            "INSERT INTO awa.queue_terminal_live_counts (ready_slot, queue, priority, enqueue_shard, counter_bucket, live_terminal_count)
             VALUES (0, 'rows', 2, 0, 3, 5), (1, 'rows', 2, 0, 3, 6), (2, 'rows', 2, 0, 3, 7)",
        )
        .await;
    stage.turn_all().await;
    let before = files(&stage, "queue").await;
    assert_step(&stage.prune().await, "queue", Some(0), ("noop", None));
    let left = "SELECT array_agg(ready_slot ORDER BY 1) FROM awa.queue_terminal_live_counts";
    assert_eq!(stage.value::<Vec<i32>>(left).await, [1, 2]);
    assert_eq!(files(&stage, "queue").await, before);
}

/// A TRUNCATE takes what row security hides, so that the looks before it must not go by what they are shown.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_rows_stop_it() {
    for table in ["ready_entries_0", "leases", "lease_claims", "lease_claim_batches", "ready_segments_0"] {
        let stage = Stage::new().await;
        let role = stage.db.role(&format!("op_{table}")).await;
        stage.run(&format!("SELECT awa_ingest.grant_operator('{role}'); ALTER TABLE awa.{table} ENABLE ROW LEVEL SECURITY")).await;
        jobs::enqueue_batch(&stage.client, &[job(ROWS, "complete")]).await;
        stage.turn_all().await;
        let before = stage.dump().await;
        let steps = maintain(&stage.db.connect_as(&role).await, "prune").await;
        let step = only(&steps, "queue");
        assert_eq!((step.outcome.as_str(), step.sqlstate.as_deref()), ("failed", Some("42501")), "{table}: {step:?}");
        stage.assert_unchanged(&before, table).await;
    }
}
