//! The storage is looked up on every call: one session follows awa through its whole life without reconnecting.

use std::sync::atomic::{AtomicU32, Ordering};

use awa_ingest_tests::{Db, Storage, Template, Worker, failure, jobs};
use awa_model::{InsertOpts, QueueStorage, QueueStorageConfig};
use serde_json::json;
use tokio_postgres::Client;

/// Enqueues one job and says in which schema it is now, or that the canonical engine has it.
async fn lands_in(client: &Client) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    jobs::enqueue(client, &jobs::job("step", json!(number))).await;
    let storages = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = 'ready_entries' AND relkind = 'p'";
    let mut holders: Vec<String> = Vec::new();
    for storage in client.query(storages, &[]).await.expect(storages) {
        let schema: String = storage.get(0);
        let found = format!("SELECT FROM {schema}.ready_entries WHERE args = '{number}'");
        if !client.query(&found, &[]).await.expect(&found).is_empty() {
            holders.push(schema);
        }
    }
    let canonical = "SELECT FROM pg_class WHERE oid = to_regclass('awa.jobs_hot')";
    if !client.query(canonical, &[]).await.expect(canonical).is_empty() {
        let found = format!("SELECT FROM awa.jobs_hot WHERE args = '{number}'");
        holders.extend((!client.query(&found, &[]).await.expect(&found).is_empty()).then(|| "canonical".into()));
    }
    assert_eq!(holders.len(), 1, "job {number} is in one storage: {holders:?}");
    holders.remove(0)
}

/// The SQLSTATE of an enqueue that is refused, in a savepoint when the caller has a transaction.
async fn refusal(client: &Client) -> String {
    let in_transaction = client.batch_execute("SAVEPOINT before").await.is_ok();
    let refused = failure(jobs::try_enqueue(client, &jobs::job("step", json!({}))).await);
    if in_transaction {
        client.batch_execute("ROLLBACK TO before").await.expect("the caller's transaction stays usable");
    }
    assert!(!refused.hint.is_empty(), "a refused storage comes with a hint: {refused:?}");
    refused.sqlstate
}

/// Mode, storage schema and readiness as `awa_ingest.status()` reports them.
async fn status(client: &Client) -> (String, Option<String>, bool) {
    let sql = "SELECT mode, storage_schema, ready, problem, hint FROM awa_ingest.status()";
    let row = client.query_one(sql, &[]).await.expect(sql);
    let (ready, problem): (bool, Option<String>) = (row.get("ready"), row.get("problem"));
    assert_eq!(ready, problem.is_none(), "not ready has a reason: {problem:?}");
    assert_eq!(ready, row.get::<_, Option<&str>>("hint").is_none(), "and a hint");
    (row.get("mode"), row.get("storage_schema"), ready)
}

fn ready(mode: &str, schema: &str) -> (String, Option<String>, bool) {
    (mode.to_owned(), Some(schema.to_owned()), true)
}

/// A statement of somebody else, committed at once.
async fn elsewhere(db: &Db, statement: &str) {
    db.connect().await.batch_execute(statement).await.expect(statement);
}

const FINALISE: &str = "SELECT awa.storage_auto_finalize_if_fresh('awa')";

/// What a restored older database looks like: awa's tables are gone, whatever else is in the schema stays.
const DROP_AWAS_TABLES: &str = "DO $$ DECLARE r record; BEGIN
    FOR r IN SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind = 'v' LOOP
        EXECUTE format('DROP VIEW %s CASCADE', r.name);
    END LOOP;
    FOR r IN SELECT oid::regclass AS name FROM pg_class
             WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition LOOP
        EXECUTE format('DROP TABLE %s CASCADE', r.name);
    END LOOP; END $$";

#[tokio::test(flavor = "multi_thread")]
async fn one_session_follows_awas_life() {
    let db = Db::embedded().await;
    let session = db.connect().await;
    assert_eq!(lands_in(&session).await, "awa_ingest");
    assert_eq!(status(&session).await, ready("embedded", "awa_ingest"));

    db.migrate_awa().await;
    assert_eq!(lands_in(&session).await, "canonical");
    assert_eq!(status(&session).await, ready("attached", "awa"));
    // awa finalises only where nothing waits.
    elsewhere(&db, "DELETE FROM awa.jobs").await;

    elsewhere(&db, FINALISE).await;
    assert_eq!(lands_in(&session).await, "awa");
    assert_eq!(status(&session).await, ready("attached", "awa"));

    elsewhere(&db, "CREATE TABLE saved AS TABLE awa.schema_version; DELETE FROM awa.schema_version WHERE version > 30").await;
    assert_eq!(refusal(&session).await, "55000", "an older schema");
    assert!(!status(&session).await.2);

    elsewhere(&db, "TRUNCATE awa.schema_version; INSERT INTO awa.schema_version TABLE saved").await;
    assert_eq!(lands_in(&session).await, "awa");

    elsewhere(&db, "INSERT INTO awa.schema_version (version, description) VALUES (43, 'ring cursor ledger')").await;
    assert_eq!(refusal(&session).await, "55000", "a newer schema");
    elsewhere(&db, "DELETE FROM awa.schema_version WHERE version = 43").await;
    assert_eq!(lands_in(&session).await, "awa");

    elsewhere(&db, DROP_AWAS_TABLES).await;
    assert_eq!(lands_in(&session).await, "awa_ingest");
    assert_eq!(status(&session).await, ready("embedded", "awa_ingest"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_sees_its_own_migration_and_its_rollback() {
    let db = Db::embedded().await;
    let session = db.connect().await;
    for _ in 0..2 {
        session.batch_execute("BEGIN").await.unwrap();
        assert_eq!(lands_in(&session).await, "awa_ingest");
        for (version, _, sql) in awa_model::migrations::migration_sql() {
            session.batch_execute(&sql).await.unwrap_or_else(|e| panic!("migration {version}: {e}"));
        }
        assert_eq!(lands_in(&session).await, "canonical");
        session.batch_execute("DELETE FROM awa.jobs; SAVEPOINT finalised").await.unwrap();
        session.batch_execute(FINALISE).await.unwrap();
        assert_eq!(lands_in(&session).await, "awa");
        session.batch_execute("ROLLBACK TO finalised").await.unwrap();
        assert_eq!(lands_in(&session).await, "canonical");
        session.batch_execute("DELETE FROM awa.jobs").await.unwrap();
        session.batch_execute(FINALISE).await.unwrap();
        assert_eq!(lands_in(&session).await, "awa");
        session.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(lands_in(&session).await, "awa_ingest");
    }
}

/// What other sessions commit between the statements of a transaction counts at READ COMMITTED, and only there: a
/// transaction with one snapshot keeps the storage of its snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn the_callers_snapshot_decides() {
    let db = Db::embedded().await;
    db.migrate_awa().await;
    let (committed, repeatable) = (db.connect().await, db.connect().await);
    committed.batch_execute("BEGIN").await.unwrap();
    repeatable.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    for session in [&committed, &repeatable] {
        assert_eq!(lands_in(session).await, "canonical");
    }
    elsewhere(&db, FINALISE).await;
    assert_eq!(lands_in(&committed).await, "awa");
    assert_eq!(lands_in(&repeatable).await, "canonical");
    // Both have jobs that the engine of before would work.
    for session in [&committed, &repeatable] {
        assert_eq!(failure(session.batch_execute("COMMIT").await).sqlstate, "40001");
    }
    repeatable.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    assert_eq!(lands_in(&repeatable).await, "awa");
}

/// Every state between canonical and active, flipped between the statements of one session.
#[tokio::test(flavor = "multi_thread")]
async fn each_transition_state_is_known() {
    let session = Db::awa().await.connect().await;
    let states = [
        ("canonical", "'canonical', NULL, 'canonical'", Ok("canonical")),
        ("prepared", "'canonical', 'queue_storage', 'prepared'", Ok("canonical")),
        ("mixed_transition", "'canonical', 'queue_storage', 'mixed_transition'", Ok("awa")),
        ("active", "'queue_storage', NULL, 'active'", Ok("awa")),
        ("an engine from the future", "'other_storage', NULL, 'active'", Err("55000")),
    ];
    for (name, values, expected) in states.into_iter().chain(states.into_iter().rev()) {
        let flip = format!("UPDATE awa.storage_transition_state SET (current_engine, prepared_engine, state) = ({values})");
        session.batch_execute(&flip).await.expect(&flip);
        match expected {
            Ok(schema) => assert_eq!(lands_in(&session).await, schema, "{name}"),
            Err(sqlstate) => assert_eq!(refusal(&session).await, sqlstate, "{name}"),
        }
    }
}

/// Without its row awa's state is canonical, for awa and so for us; but not where the row may only be hidden.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_state_is_canonical() {
    let session = Db::awa().await.connect().await;
    session.batch_execute("BEGIN; DELETE FROM awa.storage_transition_state").await.unwrap();
    assert_eq!(lands_in(&session).await, "canonical");
    session.batch_execute("ALTER TABLE awa.storage_transition_state ENABLE ROW LEVEL SECURITY").await.unwrap();
    assert_eq!(refusal(&session).await, "55000");
    session.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(lands_in(&session).await, "awa");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_storage_schema_is_followed() {
    let db = Db::embedded().await;
    db.migrate_awa().await;
    let (session, pool) = (db.connect().await, db.pool().await);
    let custom = |schema: &str| QueueStorageConfig { schema: schema.into(), queue_slot_count: 5, ..Default::default() };
    for schema in ["jobs_one", "jobs_two", "jobs_one"] {
        QueueStorage::new(custom(schema)).unwrap().install(&pool).await.unwrap();
        assert_eq!(lands_in(&session).await, schema);
        assert_eq!(status(&session).await, ready("attached", schema));
    }

    let worker = Worker::builder().queue("default").kind("step").storage(custom("jobs_one")).start(&db).await;
    worker.wait_for(2).await;
    assert_eq!(worker.stop().await.len(), 2, "the jobs of this schema, not those of the other");

    // The ring has five slots here: going once around must use each and fall off none.
    let store = QueueStorage::new(custom("jobs_two")).unwrap();
    store.install(&pool).await.unwrap();
    session.batch_execute("TRUNCATE jobs_two.ready_entries, jobs_two.ready_segments").await.unwrap();
    for _ in 0..4 {
        store.rotate(&pool).await.unwrap();
        assert_eq!(lands_in(&session).await, "jobs_two");
    }
    let slots = "SELECT array_agg(DISTINCT ready_slot ORDER BY ready_slot) FROM jobs_two.ready_entries";
    let slots: Vec<i32> = session.query_one(slots, &[]).await.unwrap().get(0);
    assert_eq!(slots, [1, 2, 3, 4]);
}

/// A storage that lost a part is refused, not guessed around, and is used again when the part is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_storage_is_refused() {
    let db = Db::awa().await;
    let session = db.connect().await;
    assert_eq!(lands_in(&session).await, "awa");
    let damages = [
        ("ALTER TABLE awa.queue_ring_state RENAME TO gone", "ALTER TABLE awa.gone RENAME TO queue_ring_state"),
        (
            "ALTER TABLE awa.ready_segments RENAME COLUMN first_run_at TO gone",
            "ALTER TABLE awa.ready_segments RENAME COLUMN gone TO first_run_at",
        ),
        (
            "UPDATE awa.storage_transition_state SET details = '{\"schema\": \"nowhere\"}'",
            "UPDATE awa.storage_transition_state SET details = '{\"schema\": \"awa\"}'",
        ),
        (
            "DELETE FROM awa.queue_ring_state",
            "INSERT INTO awa.queue_ring_state (current_slot, generation, slot_count) VALUES (0, 0, 16)",
        ),
    ];
    for (damage, repair) in damages {
        elsewhere(&db, damage).await;
        assert_eq!(refusal(&session).await, "55000", "{damage}");
        elsewhere(&db, repair).await;
        assert_eq!(lands_in(&session).await, "awa", "{repair}");
    }
}

/// A lane without its sequence has lost its position: the job is refused, other lanes are not.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_lane_is_refused() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        lands_in(&client).await;
        let heads = storage.table("queue_enqueue_heads");
        let name: String = client.query_one(&format!("SELECT seq_name FROM {heads}"), &[]).await.unwrap().get(0);
        client.batch_execute(&format!("DROP SEQUENCE {}", storage.table(&name))).await.unwrap();
        assert_eq!(refusal(&client).await, "55000", "{storage:?}");
        let other = jobs::job_with("step", json!({}), InsertOpts { priority: 1, ..Default::default() });
        jobs::enqueue(&client, &other).await;
    }
}

/// Restoring awa's tables under a session gives every relation a new OID.
#[tokio::test(flavor = "multi_thread")]
async fn recreated_tables_are_found() {
    let db = Db::embedded().await;
    let session = db.connect().await;
    for _ in 0..3 {
        db.migrate_awa().await;
        elsewhere(&db, FINALISE).await;
        for _ in 0..10 {
            // Enough calls for plans to become generic ones.
            assert_eq!(lands_in(&session).await, "awa");
        }
        elsewhere(&db, DROP_AWAS_TABLES).await;
        elsewhere(&db, DROP_AWAS_OTHER_OBJECTS).await;
        for _ in 0..10 {
            assert_eq!(lands_in(&session).await, "awa_ingest");
        }
    }
}

/// Functions, types and sequences that are not the extension's, so that `awa migrate` starts from nothing.
const DROP_AWAS_OTHER_OBJECTS: &str = "DO $$ DECLARE r record; BEGIN
    FOR r IN SELECT oid::regprocedure AS name FROM pg_proc AS p WHERE pronamespace = 'awa'::regnamespace AND NOT EXISTS
             (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e') LOOP
        EXECUTE format('DROP FUNCTION %s CASCADE', r.name);
    END LOOP;
    FOR r IN SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind = 'S' LOOP
        EXECUTE format('DROP SEQUENCE %s CASCADE', r.name);
    END LOOP;
    DROP TYPE awa.job_state CASCADE; END $$";

#[tokio::test(flavor = "multi_thread")]
async fn extension_and_awa_come_in_any_order() {
    let sql_first = Db::of(Template::Bare).await;
    elsewhere(&sql_first, "CREATE SCHEMA awa; CREATE EXTENSION awa_ingest").await;
    assert_eq!(lands_in(&sql_first.connect().await).await, "awa_ingest");
    sql_first.migrate_awa().await;
    elsewhere(&sql_first, FINALISE).await;
    assert_eq!(lands_in(&sql_first.connect().await).await, "awa");

    let canonical = Db::of(Template::AwaCanonical).await;
    elsewhere(&canonical, "CREATE EXTENSION awa_ingest").await;
    assert_eq!(lands_in(&canonical.connect().await).await, "canonical");
    canonical.migrate_awa().await;
    elsewhere(&canonical, "DELETE FROM awa.jobs").await;
    elsewhere(&canonical, FINALISE).await;
    assert_eq!(lands_in(&canonical.connect().await).await, "awa");
}
