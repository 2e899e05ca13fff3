//! A worker is the extension's owner, a superuser, but does its work as the storage's owner, whose code it runs.

use awa_ingest_tests::{Db, wait_until};

use crate::support::{make_gate, run, wait_for_run, worker};

async fn with_worker() -> (Db, String, tokio_postgres::Client) {
    let (db, owner) = Db::awa_of_a_role().await;
    let client = db.connect().await;
    run(&client, &[&format!("ALTER DATABASE {} SET awa_ingest.prune_interval = 20", db.name())]).await;
    (db, owner, client)
}

#[tokio::test]
async fn triggers_of_the_storage_run_as_its_owner() {
    let (db, owner, client) = with_worker().await;
    let own = db.connect_as(&owner).await;
    run(
        &own,
        &[
            "CREATE TABLE awa.seen (who text, session text)",
            "CREATE FUNCTION awa.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO awa.seen VALUES (current_user, session_user); RETURN OLD; END $$",
            "CREATE TRIGGER tell AFTER DELETE ON awa.queue_terminal_live_counts FOR EACH ROW EXECUTE FUNCTION awa.tell()",
            // Counts of a slot that was never used again: the prune drops them.
            "UPDATE awa.queue_ring_state SET current_slot = 1, generation = 1",
            "UPDATE awa.queue_ring_slots SET generation = 1 WHERE slot = 1",
            "INSERT INTO awa.queue_terminal_live_counts VALUES (0, 'q', 2, 0, 0, 5)",
        ],
    )
    .await;
    run(&client, &["SELECT awa_ingest.start_worker()"]).await;
    wait_until(&client, "SELECT count(*) = 0 FROM awa.queue_terminal_live_counts").await;
    let who: String = client.query_one("SELECT who FROM awa.seen", &[]).await.expect("seen").get(0);
    assert_eq!(who, owner);
}

#[tokio::test]
async fn a_deferred_trigger_cannot_wait_for_a_superuser() {
    let (db, owner, client) = with_worker().await;
    let own = db.connect_as(&owner).await;
    run(
        &own,
        &[
            "CREATE FUNCTION awa.rise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                EXECUTE format('ALTER ROLE %I SUPERUSER', current_setting('awa.attacker')); RETURN NULL; END $$",
            "CREATE CONSTRAINT TRIGGER rise AFTER DELETE ON awa.queue_terminal_live_counts
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION awa.rise()",
            "UPDATE awa.queue_ring_state SET current_slot = 1, generation = 1",
            "UPDATE awa.queue_ring_slots SET generation = 1 WHERE slot = 1",
            "INSERT INTO awa.queue_terminal_live_counts VALUES (0, 'q', 2, 0, 0, 5)",
        ],
    )
    .await;
    run(&client, &[&format!("ALTER DATABASE {} SET awa.attacker = '{owner}'", db.name()), "SELECT awa_ingest.start_worker()"])
        .await;
    wait_for_run(&client, "ring = 'queue' AND outcome = 'failed' AND sqlstate = '42501'").await;
    let risen = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{owner}'");
    assert!(!client.query_one(&risen, &[]).await.expect(&risen).get::<_, bool>(0));
}

/// ANALYZE evaluates what its table's owner wrote.
#[tokio::test]
async fn expressions_of_indexes_run_as_their_tables_owner() {
    let (db, owner, client) = with_worker().await;
    make_gate(&client).await;
    let own = db.connect_as(&owner).await;
    run(
        &own,
        &[
            "CREATE FUNCTION awa.who(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
                IF current_user <> 'postgres' THEN RETURN $1; END IF;
                RAISE EXCEPTION 'run as %', current_user; END $$",
            "CREATE INDEX ON awa.queue_enqueue_heads (awa.who(queue))",
            "SELECT awa.insert_job_compat('some', 'q')",
        ],
    )
    .await;
    run(&client, &["SELECT awa_ingest.start_worker()"]).await;
    worker(&client).await;
    wait_for_run(&client, "relation = 'awa.queue_enqueue_heads' AND outcome = 'analyzed' AND rows = 1").await;
}

/// Anybody may take an advisory lock, and so keep away whoever asks for it.
#[tokio::test]
async fn nobody_can_keep_a_worker_away() {
    let (db, _, client) = with_worker().await;
    let stranger = db.connect_as(&db.role("stranger").await).await;
    stranger
        .batch_execute("BEGIN; SELECT pg_advisory_lock(6512, n) FROM generate_series(0, 4) AS n; SELECT pg_advisory_lock(6512)")
        .await
        .expect("advisory locks");
    run(&client, &["SELECT awa_ingest.start_worker()"]).await;
    worker(&client).await;
}

/// To find the storage is to read tables of somebody else, whose policies are code.
#[tokio::test]
async fn a_policy_cannot_leave_anything_for_a_superuser_either() {
    let (db, owner, client) = with_worker().await;
    let own = db.connect_as(&owner).await;
    run(
        &own,
        &[
            "CREATE TABLE awa.bait (n integer)",
            "CREATE FUNCTION awa.rise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                EXECUTE format('ALTER ROLE %I SUPERUSER', current_setting('awa.attacker')); RETURN NULL; END $$",
            "CREATE CONSTRAINT TRIGGER rise AFTER INSERT ON awa.bait DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION awa.rise()",
            "CREATE FUNCTION awa.lure() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO awa.bait VALUES (1); RETURN true; END $$",
            "ALTER TABLE awa.storage_transition_state ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE awa.storage_transition_state FORCE ROW LEVEL SECURITY",
            "CREATE POLICY lure ON awa.storage_transition_state USING (awa.lure())",
        ],
    )
    .await;
    run(&client, &[&format!("ALTER DATABASE {} SET awa.attacker = '{owner}'", db.name()), "SELECT awa_ingest.start_worker()"])
        .await;
    wait_for_run(&client, "task = 'prune' AND outcome = 'failed' AND sqlstate = '42501'").await;
    wait_for_run(&client, "task = 'statistics' AND outcome = 'failed'").await;
    let risen = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{owner}'");
    assert!(!client.query_one(&risen, &[]).await.expect(&risen).get::<_, bool>(0));
}
