//! A worker is the extension's owner, a superuser, but does its work as the storage's owner, whose code it runs.

use awa_ingest_tests::{Cluster, Db, Template, failure, wait_until, within};

use crate::support::{make_gate, run, wait_for_run, wait_until_gone, worker};

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

const LURE: [&str; 6] = [
    "CREATE SCHEMA evil",
    "CREATE FUNCTION evil.rise() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        EXECUTE pg_catalog.format('ALTER ROLE %I SUPERUSER', pg_catalog.current_setting('awa.attacker')); END $$",
    "CREATE FUNCTION evil.quote_ident(name text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
        PERFORM evil.rise(); RETURN pg_catalog.quote_ident(name); END $$",
    "CREATE FUNCTION evil.lure() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_catalog.set_config('search_path', 'evil, pg_catalog', false); RETURN true; END $$",
    "ALTER TABLE awa.storage_transition_state ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    "CREATE POLICY lure ON awa.storage_transition_state USING (evil.lure())",
];

/// Statements that follow, as somebody greater, would find the owner's functions in place of the server's.
#[tokio::test]
async fn a_search_path_is_left_for_nobody() {
    let (db, owner, client) = with_worker().await;
    run(&client, &[&format!("GRANT CREATE ON DATABASE {} TO {owner}", db.name())]).await;
    run(&db.connect_as(&owner).await, &LURE).await;
    let producer = db.role("producer").await;
    run(
        &client,
        &[
            &format!("ALTER DATABASE {} SET awa.attacker = '{owner}'", db.name()),
            &format!("SELECT awa_ingest.grant_producer('{producer}'), awa_ingest.grant_operator('{producer}')"),
        ],
    )
    .await;
    let risen = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{owner}'");
    // Policies call with rights that the caller has not, which is as it should be.
    let caller = db.connect_as(&producer).await;
    let _ = caller.execute("SELECT awa_ingest.provision_lane('q', 2::smallint, 0::smallint)", &[]).await;
    let _ = caller.execute("SELECT awa_ingest.analyze_relation('awa.ready_entries')", &[]).await;
    assert!(!client.query_one(&risen, &[]).await.expect(&risen).get::<_, bool>(0), "by a function");
    run(&client, &["SELECT awa_ingest.start_worker()"]).await;
    wait_for_run(&client, "task = 'prune'").await;
    wait_for_run(&client, "task = 'statistics'").await;
    assert!(!client.query_one(&risen, &[]).await.expect(&risen).get::<_, bool>(0), "by a worker");
}

/// A session that a superuser began can be given back to him.
#[tokio::test]
async fn an_owner_who_is_no_superuser_has_no_worker() {
    let cluster = Cluster::start(&[]);
    let db = Db::on(cluster.clone(), Template::Bare).await;
    let client = db.connect().await;
    run(&client, &["CREATE ROLE dba SUPERUSER LOGIN"]).await;
    run(&db.connect_as("dba").await, &["CREATE EXTENSION awa_ingest"]).await;
    run(&client, &["SELECT awa_ingest.start_worker()"]).await;
    let pid = worker(&client).await;
    run(&client, &["ALTER ROLE dba NOSUPERUSER"]).await;
    run(
        &db.connect_as("dba").await,
        &[
            "CREATE FUNCTION awa_ingest.rise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                SET SESSION AUTHORIZATION postgres; ALTER ROLE dba SUPERUSER; RETURN NEW; END $$",
            "CREATE TRIGGER rise BEFORE INSERT ON awa_ingest.maintenance_records FOR EACH ROW EXECUTE FUNCTION awa_ingest.rise()",
        ],
    )
    .await;
    // The worker leaves, and the next one finds that it may not.
    wait_until_gone(&client, pid).await;
    let word = format!("the owner of the extension in database \"{}\" is no superuser", db.name());
    within("the worker's word", async {
        while !cluster.log().contains(&word) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = failure(client.execute("SELECT awa_ingest.start_worker()", &[]).await);
    assert_eq!(refused.sqlstate, "55000");
    assert!(refused.message.contains("no superuser") && refused.hint.contains("superuser again"), "{refused:?}");
    wait_until(&client, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'awa_ingest%'").await;
    assert!(!client.query_one("SELECT rolsuper FROM pg_roles WHERE rolname = 'dba'", &[]).await.expect("dba").get::<_, bool>(0));
}

/// Who was given the schema and the table by a superuser has its triggers run with its own rights; who was given the table alone has
/// nothing run at all.
#[tokio::test]
async fn triggers_of_the_record_run_as_its_owner() {
    let (db, owner, client) = with_worker().await;
    run(
        &client,
        &[
            &format!("GRANT USAGE, CREATE ON SCHEMA awa_ingest TO {owner}"),
            &format!("ALTER TABLE awa_ingest.maintenance_records OWNER TO {owner}"),
        ],
    )
    .await;
    run(
        &db.connect_as(&owner).await,
        &[
            "CREATE TABLE awa_ingest.seen (who text)",
            "CREATE FUNCTION awa_ingest.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO awa_ingest.seen VALUES (current_user); RETURN NEW; END $$",
            "CREATE TRIGGER tell BEFORE INSERT ON awa_ingest.maintenance_records FOR EACH ROW EXECUTE FUNCTION awa_ingest.tell()",
        ],
    )
    .await;
    let refused = client.execute("SELECT awa_ingest.run_maintenance('prune')", &[]).await.expect_err("owners differ");
    assert_eq!(refused.code().map(|code| code.code()), Some("55000"), "{refused:?}");
    run(&client, &[&format!("ALTER SCHEMA awa_ingest OWNER TO {owner}"), "SELECT awa_ingest.start_worker()"]).await;
    wait_until(&client, "SELECT count(*) > 15 FROM awa_ingest.seen").await;
    let others = format!("SELECT count(*) FROM awa_ingest.seen WHERE who <> '{owner}'");
    assert_eq!(client.query_one(&others, &[]).await.expect(&others).get::<_, i64>(0), 0);
}

/// A cancellation can be caught by whoever's code is running; the end of a process cannot.
#[tokio::test]
async fn code_that_will_not_be_cancelled_keeps_no_worker() {
    let (db, owner, client) = with_worker().await;
    make_gate(&client).await;
    run(&client, &[&format!("GRANT SELECT ON SEQUENCE public.gate TO {owner}"), "SELECT setval('public.gate', 2)"]).await;
    run(
        &db.connect_as(&owner).await,
        &[
            "ALTER TABLE awa.storage_transition_state ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
            "CREATE POLICY stay ON awa.storage_transition_state USING (public.stubborn('') = '')",
        ],
    )
    .await;
    run(&client, &["SELECT awa_ingest.start_worker()"]).await;
    let stays =
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'awa_ingest maintenance'
                                    AND wait_event = 'PgSleep')";
    wait_until(&client, stays).await;
    let stopped = within("stop_worker", client.query_one("SELECT awa_ingest.stop_worker()", &[])).await.expect("stop_worker");
    assert!(stopped.get::<_, bool>(0));
    wait_until(
        &client,
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND backend_type LIKE 'awa_ingest%'",
    )
    .await;
}

/// Whoever owns a database may have its sessions begin as somebody else, or read strings in another way.
#[tokio::test]
async fn settings_of_a_database_do_not_change_what_a_worker_is() {
    let (db, owner, client) = with_worker().await;
    run(
        &client,
        &[
            &format!("ALTER DATABASE {} SET role = '{owner}'", db.name()),
            &format!("ALTER DATABASE {} SET standard_conforming_strings = off", db.name()),
            &format!("ALTER DATABASE {} SET default_transaction_read_only = on", db.name()),
            &format!("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'", db.name()),
            &format!("ALTER DATABASE {} SET search_path = 'nowhere'", db.name()),
            "SELECT awa_ingest.start_worker()",
        ],
    )
    .await;
    wait_for_run(&client, "task = 'prune' AND ring = 'claim' AND outcome = 'noop'").await;
    wait_for_run(&client, "relation = 'awa.queue_claim_heads' AND outcome = 'analyzed'").await;
}

/// A view asks no function of the storage's owner for a lane's position.
#[tokio::test]
async fn the_view_of_rings_runs_nothing_of_awas() {
    let (db, owner, client) = with_worker().await;
    run(
        &db.connect_as(&owner).await,
        &[
            "SELECT awa.insert_job_compat('some', 'q')",
            "UPDATE awa.queue_ring_state SET current_slot = 1, generation = 1",
            "UPDATE awa.queue_ring_slots SET generation = 1 WHERE slot = 1",
            "CREATE OR REPLACE FUNCTION awa.sequence_next_value(p_seq_name text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'run as %', current_user; END $$",
        ],
    )
    .await;
    let row = client.query_one("SELECT reason FROM awa_ingest.rings WHERE ring = 'queue' AND slot = 0", &[]).await.expect("rings");
    assert_eq!(row.get::<_, &str>(0), "pending");
}
