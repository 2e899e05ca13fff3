//! `awa_ingest.rings` says what a prune would do.

use std::collections::BTreeMap;

use awa_ingest_tests::{Db, Template, wait_until};

use crate::actor::ROWS;
use crate::stage::{RINGS, Stage, only, run};

/// What the view says of a slot: generation, whether it is current, whether it can be pruned, or why not.
type Said = (Option<i64>, bool, bool, Option<String>);

async fn said(stage: &Stage, ring: &str) -> BTreeMap<i32, Said> {
    let sql = "SELECT slot, generation, current, prunable, reason FROM awa_ingest.rings WHERE ring = $1";
    let rows = stage.client.query(sql, &[&ring]).await.expect(sql);
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3), row.get(4)))).collect()
}

fn not(generation: Option<i64>, reason: &str) -> Said {
    (generation, reason == "current", false, Some(reason.into()))
}

/// The oldest slot's verdict is that of the prune.
async fn assert_agrees(stage: &Stage) {
    let mut verdicts = Vec::new();
    for ring in RINGS {
        verdicts.push(said(stage, ring).await[&0].clone());
    }
    let steps = stage.prune().await;
    for (ring, (_, _, prunable, reason)) in RINGS.into_iter().zip(verdicts) {
        let step = only(&steps, ring);
        assert_eq!(step.outcome == "pruned", prunable, "{ring}: {step:?}");
        // What found nothing was about no slot, unless it dropped counts.
        assert!(step.slot == Some(0) || reason.as_deref() == Some("empty"), "{ring}: {step:?}");
        assert_eq!(step.reason, reason.filter(|reason| reason != "empty"), "{ring}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_agrees_with_the_prune() {
    let stage = Stage::new().await;
    for (ring, slots) in [("queue", 16), ("lease", 8), ("claim", 8)] {
        let said = said(&stage, ring).await;
        assert_eq!((said.len(), &said[&0]), (slots, &not(Some(0), "current")), "{ring}");
        assert!(said.iter().skip(1).all(|(_, said)| *said == not(None, "unused")), "{ring}: {said:?}");
    }
    let actor = stage.actor().await;
    stage.enqueue(ROWS, &["complete", "lease"]).await;
    actor.wait_for(2).await;
    stage.turn_all().await;
    let queue = said(&stage, "queue").await;
    assert_eq!((&queue[&0], &queue[&1]), (&not(Some(0), "leases"), &not(Some(1), "current")));
    assert_eq!(said(&stage, "lease").await[&0], not(Some(0), "leases"));
    assert_agrees(&stage).await;
    actor.stop().await;
    stage.enqueue(ROWS, &["complete"]).await;
    stage.turn("queue").await;
    let queue = said(&stage, "queue").await;
    assert_eq!((&queue[&0], &queue[&1]), (&(Some(0), false, true, None), &not(Some(1), "not_oldest")));
    assert_agrees(&stage).await;
    assert_eq!(said(&stage, "queue").await[&0], not(Some(0), "empty"));
    assert_agrees(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_agrees_with_the_prune() {
    let stage = Stage::new().await;
    let actor = stage.actor().await;
    stage.enqueue(ROWS, &["hold"]).await;
    actor.wait_for(1).await;
    stage.turn_all().await;
    assert_eq!(said(&stage, "queue").await[&0], not(Some(0), "unclosed_claims"));
    assert_eq!(said(&stage, "claim").await[&0], not(Some(0), "open_claims"));
    assert_agrees(&stage).await;
    actor.stop().await;
    assert_agrees(&stage).await;

    let stage = Stage::new().await;
    stage.enqueue(ROWS, &["complete"]).await;
    stage.turn_all().await;
    assert_eq!(said(&stage, "queue").await[&0], not(Some(0), "pending"));
    assert_agrees(&stage).await;
}

/// Counts without rows are dropped, but a slot that has nothing else is empty.
#[tokio::test(flavor = "multi_thread")]
async fn orphaned_counts_are_no_rows() {
    let stage = Stage::new().await;
    stage
        .run(
            "INSERT INTO awa.queue_terminal_live_counts (ready_slot, queue, priority, enqueue_shard, counter_bucket, live_terminal_count)
             VALUES (0, 'rows', 2, 0, 3, 5)",
        )
        .await;
    stage.turn_all().await;
    assert_eq!(said(&stage, "queue").await[&0], not(Some(0), "empty"));
    assert_agrees(&stage).await;
}

/// Generations go on when the ring has turned once.
#[tokio::test(flavor = "multi_thread")]
async fn it_follows_the_ring_round() {
    let stage = Stage::elsewhere("elsewhere").await;
    for _ in 0..6 {
        stage.turn_all().await;
    }
    let queue = said(&stage, "queue").await;
    let expected = [not(Some(4), "not_oldest"), not(Some(5), "not_oldest"), not(Some(6), "current"), not(Some(3), "empty")];
    assert_eq!(queue.into_values().collect::<Vec<_>>(), expected);
    let slots = "SELECT array_agg(generation ORDER BY slot) FROM elsewhere.queue_ring_slots";
    assert_eq!(stage.value::<Vec<i64>>(slots).await, [4, 5, 6, 3]);
    assert_eq!(said(&stage, "claim").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_those_of_the_statistics() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete", "complete", "complete"]).await;
    // Sessions report when they end, or every second.
    let exact = stage.rows_of_slot("queue", 0).await;
    wait_until(&stage.client, &format!("SELECT rows = {exact} FROM awa_ingest.rings WHERE ring = 'queue' AND slot = 0")).await;
    assert_eq!(stage.value::<i64>("SELECT sum(rows)::bigint FROM awa_ingest.rings WHERE ring = 'queue' AND slot > 0").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_storages() {
    let client = Db::embedded().await.connect().await;
    let sql = "SELECT count(*), bool_or(prunable), array_agg(DISTINCT ring), array_agg(DISTINCT reason ORDER BY reason) FROM awa_ingest.rings";
    let row = client.query_one(sql, &[]).await.expect(sql);
    assert_eq!((row.get(0), row.get(1), row.get(2)), (16_i64, false, vec!["queue".to_owned()]));
    assert_eq!(row.get::<_, Vec<String>>(3), ["current", "unused"]);

    let canonical = Db::of(Template::AwaCanonical).await;
    let client = canonical.connect().await;
    run(&client, "CREATE EXTENSION awa_ingest").await;
    assert_eq!(client.query_one(sql, &[]).await.expect(sql).get::<_, i64>(0), 0);
}
