//! Lanes that awa 0.6.9 never works again, built with awa's own functions and clients alone, and how they are set going.

use awa_ingest_tests::{Cluster, Db, Storage, failure, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::actor::{BATCHES, ROWS};
use crate::stage::{Stage, Step, job, maintain, run, try_maintain};

/// Rolls back awa's own enqueue of `count` jobs: positions are never given back.
async fn gap(stage: &Stage, queue: &str, count: usize) {
    // A lane that was new would go, too.
    for table in ["lanes (queue, priority)", "enqueue_heads (queue, priority)", "claim_heads (queue, priority)"] {
        stage.run(&format!("INSERT INTO awa.queue_{table} VALUES ('{queue}', 2) ON CONFLICT DO NOTHING")).await;
    }
    stage.run("BEGIN").await;
    for _ in 0..count {
        let enqueue = "SELECT awa.insert_job_compat('act', $1, '{}')";
        stage.client.execute(enqueue, &[&queue]).await.expect(enqueue);
    }
    stage.run("ROLLBACK").await;
}

/// awa's own client enqueues.
async fn enqueue(stage: &Stage, queue: &str, count: usize) {
    let batch = vec![job(queue, "complete"); count];
    assert_eq!(stage.store.enqueue_params_copy(&stage.pool, &batch).await.expect("enqueue_params_copy"), count);
}

/// What awa's worker does first: it claims, and commits. Then it dies, and the cursor stays.
async fn claim_and_die(stage: &Stage, queue: &str) -> usize {
    let claim = "SELECT lane_seq FROM awa.claim_ready_runtime($1, 100, 0, 0)";
    stage.client.query(claim, &[&queue]).await.expect(claim).len()
}

/// awa's claim function, again and again: a lane that it can move, it moves within two calls.
async fn assert_stands(stage: &Stage, queue: &str) {
    let before = cursor(stage, queue).await;
    for _ in 0..20 {
        assert_eq!(claim_and_die(stage, queue).await, 0, "nothing is claimed");
    }
    assert_eq!(cursor(stage, queue).await, before, "the cursor does not move");
}

/// Has an awa worker work `count` jobs. Those that a dead worker claimed stay claimed.
async fn work(stage: &Stage, count: usize) {
    let actor = stage.actor().await;
    actor.wait_for(count).await;
    assert_eq!(actor.stop().await.len(), count, "no job is worked twice");
}

async fn cursor(stage: &Stage, queue: &str) -> i64 {
    stage.value(&format!("SELECT awa.sequence_next_value(seq_name) FROM awa.queue_claim_heads WHERE queue = '{queue}'")).await
}

async fn stalled(stage: &Stage) -> Vec<Value> {
    let view =
        "(SELECT queue, priority, shard, claim_position, next_position, oldest IS NOT NULL AS waits FROM awa_ingest.stalled_lanes)";
    rows(&stage.client, view, &[]).await
}

fn stands(queue: &str, claim: i64, next: i64, waits: bool) -> Value {
    json!({"queue": queue, "priority": 2, "shard": 0, "claim_position": claim, "next_position": next, "waits": waits})
}

/// A lane whose cursor is at 1, behind a gap of three, with three claimed jobs behind that and one that nobody has claimed.
async fn build(stage: &Stage, queue: &str) {
    gap(stage, queue, 3).await;
    enqueue(stage, queue, 3).await;
    assert_eq!(claim_and_die(stage, queue).await, 3);
    enqueue(stage, queue, 1).await;
}

/// What is done about lanes that stand. Sequences that are behind are another step.
async fn look_after(client: &Client) -> Vec<Step> {
    let mut steps = maintain(client, "lanes").await;
    let sequences = steps.remove(0);
    assert_eq!((sequences.ring.as_deref(), sequences.ended()), (Some("sequences"), ("noop", None)), "{sequences:?}");
    steps
}

#[track_caller]
fn assert_healed(steps: &[Step], queue: &str, over: i64) {
    let [step] = steps else { panic!("one step, but found {steps:?}") };
    assert_eq!((step.ended(), step.rows), (("healed", None), Some(over)), "{queue}: {step:?}");
    assert!(step.relation.as_ref().is_some_and(|name| name.starts_with("awa.queue_claim_seq_")), "{step:?}");
}

/// The jobs behind are worked, those that the dead worker claimed are not (awa rescues them when their time is over).
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_awa_never_leaves_goes_on() {
    let stage = Stage::new().await;
    assert_eq!(stalled(&stage).await, [] as [Value; 0]);
    build(&stage, BATCHES).await;
    let expected = stands(BATCHES, 1, 7, true);
    assert_eq!(stalled(&stage).await, std::slice::from_ref(&expected));
    assert_stands(&stage, BATCHES).await;

    // A worker that works another queue meanwhile.
    let actor = stage.actor().await;
    for done in 1..=5 {
        enqueue(&stage, ROWS, 1).await;
        actor.wait_for(done).await;
    }
    assert_eq!(stalled(&stage).await, [expected], "awa's worker has not moved it");

    assert_healed(&look_after(&stage.client).await, BATCHES, 6);
    actor.wait_for(6).await;
    assert_eq!(stalled(&stage).await, [] as [Value; 0]);
    let worked = actor.stop().await;
    assert_eq!((worked.len(), worked[5].queue.as_str()), (6, BATCHES));
    let steps = look_after(&stage.client).await;
    assert_eq!(steps.iter().map(Step::ended).collect::<Vec<_>>(), [("noop", None)]);
}

/// Without a worker that dies: a job behind a gap is cancelled before it is claimed.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_behind_a_gap() {
    let stage = Stage::new().await;
    gap(&stage, BATCHES, 2).await;
    enqueue(&stage, BATCHES, 2).await;
    let first: i64 = stage.value("SELECT job_id FROM awa.ready_entries WHERE lane_seq = 3").await;
    awa_model::admin::cancel(&stage.pool, first).await.expect("cancel").expect("the job");
    assert_eq!(stalled(&stage).await, [stands(BATCHES, 1, 4, true)]);
    assert_stands(&stage, BATCHES).await;
    assert_healed(&look_after(&stage.client).await, BATCHES, 3);
    work(&stage, 1).await;
}

/// The next job may be in another slot, and several gaps and runs before it.
#[tokio::test(flavor = "multi_thread")]
async fn the_cursor_goes_to_the_next_job_wherever_it_is() {
    let stage = Stage::new().await;
    for _ in 0..3 {
        gap(&stage, BATCHES, 2).await;
        enqueue(&stage, BATCHES, 2).await;
    }
    assert!(stage.turn("queue").await);
    enqueue(&stage, BATCHES, 1).await;
    assert_eq!(claim_and_die(&stage, BATCHES).await, 6, "the jobs of a slot");
    assert_stands(&stage, BATCHES).await;
    assert_eq!(stalled(&stage).await, [stands(BATCHES, 1, 13, true)]);
    assert_healed(&look_after(&stage.client).await, BATCHES, 12);
    work(&stage, 1).await;
}

/// Where no job waits the lane stands all the same, and the ring with it: a slot is not pruned while it has jobs behind the cursor.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_without_jobs_that_wait() {
    let stage = Stage::new().await;
    gap(&stage, BATCHES, 1).await;
    enqueue(&stage, BATCHES, 2).await;
    assert_eq!(claim_and_die(&stage, BATCHES).await, 2);
    assert_eq!(stalled(&stage).await, [stands(BATCHES, 1, 4, false)]);
    assert_healed(&look_after(&stage.client).await, BATCHES, 3);
    assert_eq!(stalled(&stage).await, [] as [Value; 0]);
    enqueue(&stage, BATCHES, 1).await;
    work(&stage, 1).await;
}

/// awa's claim function stands before a segment whose jobs were deleted by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_segment_whose_jobs_are_gone() {
    let stage = Stage::new().await;
    enqueue(&stage, BATCHES, 3).await;
    stage.run("DELETE FROM awa.ready_entries").await;
    assert!(stage.turn("queue").await);
    enqueue(&stage, BATCHES, 1).await;
    assert_stands(&stage, BATCHES).await;
    assert_eq!(stalled(&stage).await, [stands(BATCHES, 1, 4, true)]);
    assert_healed(&look_after(&stage.client).await, BATCHES, 3);
    work(&stage, 1).await;
}

/// Positions that are reserved and not committed, also in a prepared transaction: the lane is left alone until that is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_has_not_committed_is_not_passed() {
    let stage = Stage::on(Cluster::start(&[("max_prepared_transactions", "2")])).await;
    build(&stage, BATCHES).await;
    // The job that waits is claimed as well, so that the end of the lane would be the target.
    stage.run("UPDATE awa.ready_claim_attempt_batches SET lane_ranges = '{[4,8)}', next_lane_seq = 8, claimed_count = 4").await;
    let producer = stage.db.connect().await;
    let reservations = [
        (format!("SELECT awa.insert_job_compat('act', '{BATCHES}', '{{}}')"), "SELECT", "COMMIT"),
        (
            format!("SELECT awa.reserve_enqueue_seq('{BATCHES}', 2::smallint, 0::smallint, 5)"),
            "PREPARE TRANSACTION 'parked'",
            "COMMIT PREPARED 'parked'",
        ),
    ];
    for (reserve, park, end) in reservations {
        run(&producer, &format!("BEGIN; {reserve}")).await;
        run(&producer, park).await;
        let steps = look_after(&stage.client).await;
        assert_eq!(steps.iter().map(Step::ended).collect::<Vec<_>>(), [("blocked", None)], "{park}: {steps:?}");
        assert_eq!(cursor(&stage, BATCHES).await, 1, "{park}");
        run(&producer, end).await;
    }
    assert_healed(&look_after(&stage.client).await, BATCHES, 7);
    // The job that was committed in between.
    work(&stage, 1).await;
}

/// A claim that is under way holds the claim head.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_under_way_is_not_crossed() {
    let stage = Stage::new().await;
    build(&stage, BATCHES).await;
    let claimer = stage.db.connect().await;
    run(&claimer, "BEGIN; SELECT FROM awa.queue_claim_heads FOR UPDATE").await;
    let steps = look_after(&stage.client).await;
    assert_eq!(steps.iter().map(Step::ended).collect::<Vec<_>>(), [("blocked", None)], "{steps:?}");
    assert_eq!(cursor(&stage, BATCHES).await, 1);
    run(&claimer, "ROLLBACK").await;
    // The cursor itself is locked by those who move it.
    let lock = format!("SELECT pg_advisory_lock(hashtextextended('awa.queue_claim_seq_' || md5('{BATCHES}:2:0'), 0))");
    run(&claimer, &lock).await;
    let steps = look_after(&stage.client).await;
    assert_eq!(steps.iter().map(Step::ended).collect::<Vec<_>>(), [("blocked", None)], "{steps:?}");
    run(&claimer, "SELECT pg_advisory_unlock_all()").await;
    assert_healed(&look_after(&stage.client).await, BATCHES, 6);
}

/// Gaps alone, and claimed runs alone, are awa's daily business.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_go_on_are_left_alone() {
    let stage = Stage::new().await;
    // Claimed from the cursor on, and a gap behind that.
    enqueue(&stage, BATCHES, 2).await;
    assert_eq!(claim_and_die(&stage, BATCHES).await, 2);
    gap(&stage, BATCHES, 2).await;
    enqueue(&stage, BATCHES, 1).await;
    // A gap, and unclaimed jobs behind it.
    gap(&stage, ROWS, 2).await;
    enqueue(&stage, ROWS, 1).await;
    // Positions that nobody has committed yet, or ever will.
    gap(&stage, "empty", 2).await;
    assert_eq!(stalled(&stage).await, [] as [Value; 0]);
    let before = stage.dump().await;
    let steps = look_after(&stage.client).await;
    assert_eq!(steps.iter().map(Step::ended).collect::<Vec<_>>(), [("noop", None)]);
    stage.assert_unchanged(&before, "left alone").await;
    assert_eq!((cursor(&stage, BATCHES).await, cursor(&stage, ROWS).await), (1, 1));
    work(&stage, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_snapshot_proves_nothing() {
    let stage = Stage::new().await;
    build(&stage, BATCHES).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        stage.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(failure(try_maintain(&stage.client, "lanes").await).sqlstate, "0A000", "{level}");
        stage.run("ROLLBACK").await;
    }
    assert_eq!(cursor(&stage, BATCHES).await, 1);
}

/// An ordinary role owns awa, and an operator of it heals; who may only look cannot.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_heals() {
    let stage = Stage::of_a_role().await;
    build(&stage, BATCHES).await;
    let (operator, reader) = (stage.db.role("operator").await, stage.db.role("reader").await);
    stage.run(&format!("SELECT awa_ingest.grant_operator('{operator}'), awa_ingest.grant_operator('{reader}')")).await;
    let cursor = format!("awa.queue_claim_seq_' || md5('{BATCHES}:2:0') || '");
    stage.run(&format!("DO $$ BEGIN EXECUTE 'REVOKE UPDATE ON SEQUENCE {cursor} FROM {reader}'; END $$")).await;
    let client = stage.db.connect_as(&reader).await;
    let steps = look_after(&client).await;
    assert_eq!((steps.len(), steps[0].sqlstate.as_deref()), (1, Some("42501")), "{steps:?}");
    let client = stage.db.connect_as(&operator).await;
    assert_eq!(rows(&client, "awa_ingest.stalled_lanes", &[]).await.len(), 1);
    assert_healed(&look_after(&client).await, BATCHES, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn storages_that_nobody_claims_from() {
    let client = Storage::Embedded.db().await.connect().await;
    run(&client, "SELECT awa.enqueue('k')").await;
    assert_eq!(rows(&client, "awa_ingest.stalled_lanes", &[]).await, [] as [Value; 0]);
    let steps = look_after(&client).await;
    assert_eq!(steps.iter().map(Step::ended).collect::<Vec<_>>(), [("noop", None)]);
    let client = Db::of(awa_ingest_tests::Template::AwaCanonical).await.connect().await;
    run(&client, "CREATE EXTENSION awa_ingest").await;
    assert_eq!(rows(&client, "awa_ingest.stalled_lanes", &[]).await, [] as [Value; 0]);
    let steps = maintain(&client, "lanes").await;
    assert_eq!(steps.iter().map(Step::ended).collect::<Vec<_>>(), [("noop", Some("canonical_engine"))]);
}
