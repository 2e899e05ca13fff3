//! What becomes true only between a prune's first look at a slot and its lock.
//!
//! That moment is made to last: a prune whose session has set `gate.call` waits in its n-th call of `gate.pass()`, which is called from
//! inside awa's `sequence_next_value`, where it looks for waiting jobs, or from a view, where it counts claims. The statement
//! that waits has its snapshot already, so that it does not see what the test does now, and the prune goes on to its lock. Waiting is
//! polling of a sequence, which no transaction hides: a lock would be subject to the prune's own lock_timeout.

use awa_ingest_tests::{backend_pid, failure, jobs, wait_until, wait_until_blocked, within};
use tokio::task::JoinHandle;

use crate::actor::ROWS;
use crate::stage::{Stage, Step, assert_step, job, maintain, run, try_maintain};

const GATE: &str = "
    CREATE SCHEMA gate;
    CREATE SEQUENCE gate.calls; CREATE SEQUENCE gate.reached; CREATE SEQUENCE gate.opened;
    CREATE FUNCTION gate.pass() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
    DECLARE
        here constant bigint := NULLIF(current_setting('gate.call', true), '')::bigint;
    BEGIN
        IF here IS NULL THEN
            RETURN true;
        END IF;
        IF nextval('gate.calls') = here THEN
            PERFORM nextval('gate.reached');
            LOOP
                EXIT WHEN (SELECT is_called FROM gate.opened);
                PERFORM pg_sleep(0.001);
            END LOOP;
        END IF;
        RETURN true;
    END
    $$;
    GRANT USAGE ON SCHEMA gate TO PUBLIC;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA gate TO PUBLIC;
    ALTER FUNCTION awa.sequence_next_value(text) RENAME TO sequence_next_value_of_awa;
    CREATE FUNCTION awa.sequence_next_value(p_seq_name text) RETURNS bigint LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM gate.pass();
        RETURN awa.sequence_next_value_of_awa(p_seq_name);
    END
    $$";

/// In which call of `gate.pass()` a prune of the queue ring stands behind its locks on the ring, and before that on the partitions: it
/// looked once without locks. There is one lane.
const QUEUE: u32 = 2;
/// The same for the claim ring, with one claim: two statements a look.
const CLAIM: u32 = 4;
/// A rollup looks once before it takes locks.
const ROLLUP: u32 = 1;

/// A prune that stands in the gate: its steps, and the partitions of slot 0 and 1 that its transaction keeps locked afterwards.
struct Paused {
    prune: JoinHandle<(Vec<Step>, i64)>,
}

const LOCKED: &str = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND mode = 'AccessExclusiveLock'
                      AND relation::regclass::text ~ '^awa.*_[01]$'";

impl Paused {
    /// Starts a prune in a session of `role`, and waits until it stands in the gate.
    async fn start(stage: &Stage, role: &str, call: u32) -> Self {
        let session = stage.db.connect_as(role).await;
        run(&session, &format!("SET gate.call = '{call}'")).await;
        let prune = tokio::spawn(async move {
            run(&session, "BEGIN").await;
            let steps = maintain(&session, "prune").await;
            let locked = session.query_one(LOCKED, &[]).await.expect(LOCKED).get(0);
            run(&session, "COMMIT").await;
            (steps, locked)
        });
        wait_until(&stage.client, "SELECT is_called FROM gate.reached").await;
        Self { prune }
    }

    /// Lets it go on.
    async fn go_on(self, stage: &Stage) -> Vec<Step> {
        stage.run("SELECT nextval('gate.opened')").await;
        let (steps, locked) = within("the prune", self.prune).await.expect("the prune's task");
        let changed = steps.iter().any(|step| ["pruned", "rolled"].contains(&&*step.outcome));
        assert_eq!(locked > 0, changed, "locks are kept of what was emptied only: {steps:#?}");
        steps
    }
}

/// A slot that can be pruned, and the gate.
async fn stage() -> Stage {
    let stage = Stage::new().await;
    stage.run(GATE).await;
    stage.play(ROWS, &["complete"]).await;
    stage
}

const LEASE: &str =
    "INSERT INTO awa.leases (lease_slot, lease_generation, ready_slot, ready_generation, job_id, queue, priority, lane_seq)
                     VALUES (0, 0, 0, 0, 99, 'rows', 2, 1)";
const CLAIM_OF_SLOT_0: &str = "INSERT INTO awa.lease_claims
    (claim_slot, job_id, run_lease, ready_slot, ready_generation, queue, priority, attempt, max_attempts, lane_seq)
    VALUES (0, 99, 1, 0, 0, 'rows', 2, 1, 1, 1)";

/// Without anything in between, the prune goes through: the gate itself changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nothing() {
    let stage = stage().await;
    stage.turn("queue").await;
    let steps = Paused::start(&stage, "postgres", QUEUE).await.go_on(&stage).await;
    assert_step(&steps, "queue", Some(0), ("pruned", None));
}

/// A producer that began in the slot while it was the current one.
#[tokio::test(flavor = "multi_thread")]
async fn a_job() {
    let stage = stage().await;
    let producer = stage.db.connect().await;
    run(&producer, "BEGIN").await;
    let id = jobs::enqueue(&producer, &job(ROWS, "complete")).await;
    stage.turn("queue").await;
    let paused = Paused::start(&stage, "postgres", QUEUE).await;
    run(&producer, "COMMIT").await;
    let steps = paused.go_on(&stage).await;
    assert_step(&steps, "queue", Some(0), ("skipped_active", Some("pending")));
    assert_eq!(stage.work(1).await, [id]);
    assert_eq!(stage.counts(ROWS).await.terminal, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_or_a_claim() {
    for (statement, reason) in [(LEASE, "leases"), (CLAIM_OF_SLOT_0, "unclosed_claims")] {
        let stage = stage().await;
        stage.turn("queue").await;
        let paused = Paused::start(&stage, "postgres", QUEUE).await;
        stage.run(statement).await;
        let before = stage.dump().await;
        let steps = paused.go_on(&stage).await;
        assert_step(&steps, "queue", Some(0), ("skipped_active", Some(reason)));
        stage.assert_unchanged(&before, reason).await;
    }
}

/// The ring stands still while the prune looks at its oldest slot, so that this cannot become the current one.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn() {
    let stage = stage().await;
    stage.turn("queue").await;
    let paused = Paused::start(&stage, "postgres", QUEUE).await;
    let turning = stage.db.connect().await;
    let pid = backend_pid(&turning).await;
    let turn = tokio::spawn(async move {
        run(&turning, "SELECT FROM awa.queue_ring_state WHERE singleton FOR UPDATE").await;
    });
    wait_until_blocked(&stage.client, pid).await;
    assert_step(&paused.go_on(&stage).await, "queue", Some(0), ("pruned", None));
    within("the turn", turn).await.expect("its task");
}

/// A slot that becomes another generation's between the first look and the lock on the ring is looked at anew: here the prune finds
/// another oldest slot, which is empty.
#[tokio::test(flavor = "multi_thread")]
async fn another_oldest_slot() {
    let stage = stage().await;
    stage.turn("queue").await;
    let paused = Paused::start(&stage, "postgres", 1).await;
    stage.run("UPDATE awa.queue_ring_slots SET generation = -1 WHERE slot = 0; UPDATE awa.queue_ring_slots SET generation = 0 WHERE slot = 2").await;
    let steps = paused.go_on(&stage).await;
    assert_step(&steps, "queue", None, ("noop", None));
    assert!(stage.rows_of_slot("queue", 0).await > 0, "what is not the oldest any more stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_claim_in_the_claim_ring() {
    let stage = stage().await;
    // A view stands before the partition, good enough for all but the TRUNCATE. Not for a superuser, who would run its code.
    let operator = stage.db.role("operator").await;
    stage
        .run(&format!(
            "SELECT awa_ingest.grant_operator('{operator}');
             ALTER TABLE awa.lease_claims_0 RENAME TO lease_claims_behind_0;
             CREATE VIEW awa.lease_claims_0 AS SELECT * FROM awa.lease_claims_behind_0 WHERE gate.pass();
             GRANT ALL ON awa.lease_claims_0 TO {operator}"
        ))
        .await;
    stage.turn("claim").await;
    assert_eq!(stage.value::<i64>("SELECT count(*) FROM awa.lease_claims_0").await, 1);
    let paused = Paused::start(&stage, &operator, CLAIM).await;
    stage.run(CLAIM_OF_SLOT_0).await;
    let before = stage.dump().await;
    let steps = paused.go_on(&stage).await;
    assert_step(&steps, "claim", Some(0), ("skipped_active", Some("open_claims")));
    stage.assert_unchanged(&before, "after the prune").await;
}

/// Counts are not folded while claims are open, either: awa may still have to take back what it counted.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_claim_before_a_rollup() {
    let stage = Stage::new().await;
    stage.turn_all().await;
    stage.play(ROWS, &["fail", "complete"]).await;
    stage.turn("queue").await;
    stage.run(GATE).await;
    let paused = Paused::start(&stage, "postgres", ROLLUP).await;
    stage.run(&CLAIM_OF_SLOT_0.replace("(0, 99, 1, 0, 0,", "(1, 99, 1, 1, 1,")).await;
    let before = stage.dump().await;
    let steps = paused.go_on(&stage).await;
    assert_step(&steps, "rollup", Some(1), ("skipped_active", Some("unclosed_claims")));
    stage.assert_unchanged(&before, "after the rollup").await;
}

/// Whoever cancels a run gets just that, and nothing is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation() {
    let stage = stage().await;
    stage.turn_all().await;
    let session = stage.db.connect().await;
    let (pid, cancel) = (backend_pid(&session).await, session.cancel_token());
    run(&session, "SET gate.call = '2'").await;
    let prune = tokio::spawn(async move { (try_maintain(&session, "prune").await, session) });
    wait_until(&stage.client, "SELECT is_called FROM gate.reached").await;
    let before = stage.dump().await;
    cancel.cancel_query(tokio_postgres::NoTls).await.expect("the cancellation is sent");
    let (result, session) = within("the cancelled run", prune).await.expect("its task");
    assert_eq!(failure(result).sqlstate, "57014");
    stage.assert_unchanged(&before, "after the cancellation").await;
    assert_eq!(stage.value::<i64>("SELECT count(*) FROM awa_ingest.maintenance_runs").await, 0);
    assert_eq!(backend_pid(&session).await, pid, "the session goes on");
    run(&session, "RESET gate.call").await;
    assert_step(&maintain(&session, "prune").await, "queue", Some(0), ("pruned", None));
}

/// A statement's timeout is a cancellation, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout() {
    let stage = stage().await;
    stage.turn_all().await;
    stage.run("SET gate.call = '2'; SET statement_timeout = 300").await;
    assert_eq!(failure(try_maintain(&stage.client, "prune").await).sqlstate, "57014");
    stage.run("RESET gate.call; RESET statement_timeout").await;
    assert_eq!(stage.value::<i64>("SELECT count(*) FROM awa_ingest.maintenance_runs").await, 0);
}
