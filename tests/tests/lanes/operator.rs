//! An operator has what `awa_ingest.grant_operator` gives: everything that operating takes, and no way to enqueue.

use crate::problems::{databases, enqueue, problems, provision, repair, sequence};
use awa_ingest_tests::{Db, Storage, Template, failure};
use tokio_postgres::Client;

async fn operator(db: &Db, name: &str) -> Client {
    let role = db.role(name).await;
    db.connect().await.execute("SELECT awa_ingest.grant_operator($1)", &[&role]).await.expect("grant_operator");
    db.connect_as(&role).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_and_repairs() {
    for (storage, db, owner) in databases().await {
        let superuser = db.connect().await;
        enqueue(&superuser, "before").await.unwrap();
        let client = operator(&db, "operator").await;
        enqueue(&superuser, "after").await.unwrap();
        assert_eq!(problems(&client).await, [], "{storage:?}");
        let waiting = "SELECT queue || waiting FROM awa_ingest.lanes ORDER BY queue";
        let shown: Vec<String> = client.query(waiting, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert_eq!(shown, ["after1", "before1"], "{storage:?}");
        let ready: bool = client.query_one("SELECT ready FROM awa_ingest.status()", &[]).await.unwrap().get(0);
        assert!(ready);
        provision(&client, "of the operator").await.unwrap();
        // With the owner's role he repairs, too.
        let name = sequence(&client, "enqueue", "after").await;
        let (role, reader) = (format!("{}_operator", db.name()), db.role("reader").await);
        let damage = format!("GRANT SELECT ON {} TO {reader}", storage.table("queue_enqueue_heads"));
        superuser.batch_execute(&damage).await.unwrap();
        assert_eq!(failure(repair(&client, storage.schema(), &name).await).sqlstate, "42501");
        superuser.batch_execute(&format!("GRANT {owner} TO {role}")).await.unwrap();
        assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "repaired", "{storage:?}");
    }
}

/// What a prune does to awa's storage, step by step. `{s}` stands for the schema.
const UPKEEP: [&str; 14] = [
    "SELECT current_slot FROM {s}.queue_ring_state FOR UPDATE",
    "SELECT FROM {s}.queue_ring_slots FOR UPDATE",
    "SELECT FROM {s}.lease_ring_state, {s}.lease_ring_slots FOR UPDATE",
    "SELECT FROM {s}.claim_ring_state, {s}.claim_ring_slots FOR UPDATE",
    "SELECT {s}.sequence_next_value(seq_name) FROM {s}.queue_claim_heads",
    "LOCK TABLE {s}.ready_entries_3, {s}.ready_claim_attempt_batches_3, {s}.done_entries_3, {s}.ready_tombstones_3, {s}.ready_segments_3,
        {s}.receipt_completion_batches_3, {s}.receipt_completion_tombstones_3, {s}.queue_terminal_count_deltas_3 IN ACCESS EXCLUSIVE MODE",
    "SELECT FROM {s}.leases LIMIT 1",
    "INSERT INTO {s}.done_entries SELECT * FROM {s}.done_entries_3",
    "INSERT INTO {s}.queue_terminal_count_deltas SELECT * FROM {s}.queue_terminal_count_deltas_3",
    "TRUNCATE {s}.ready_entries_3, {s}.ready_claim_attempt_batches_3, {s}.done_entries_3, {s}.ready_tombstones_3, {s}.ready_segments_3,
        {s}.receipt_completion_batches_3, {s}.receipt_completion_tombstones_3, {s}.queue_terminal_count_deltas_3",
    "DELETE FROM {s}.queue_terminal_live_counts WHERE ready_slot = 3",
    "INSERT INTO {s}.queue_terminal_rollups (queue, priority) VALUES ('q', 2)
        ON CONFLICT (queue, priority) DO UPDATE SET pruned_failed_count = 0",
    "TRUNCATE {s}.leases_3, {s}.lease_claims_3, {s}.lease_claim_batches_3, {s}.lease_claim_closures_3, {s}.lease_claim_closure_batches_3",
    "UPDATE {s}.claim_ring_slots SET rescue_cursor_job_id = 0 WHERE slot = 3",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_prune() {
    for (storage, db, _) in databases().await {
        if storage == Storage::Embedded {
            continue;
        }
        enqueue(&db.connect().await, "mail").await.unwrap();
        let client = operator(&db, "operator").await;
        client.batch_execute("BEGIN").await.unwrap();
        for statement in UPKEEP {
            client.batch_execute(&statement.replace("{s}", "awa")).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
        }
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// What the extension's own maintenance does, with his rights.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_maintains() {
    for (storage, db, _) in databases().await {
        enqueue(&db.connect().await, "mail").await.unwrap();
        let client = operator(&db, "operator").await;
        for task in ["statistics", "prune"] {
            let run = "SELECT concat_ws(' ', relation, ring, outcome, sqlstate, error) FROM awa_ingest.run_maintenance($1)";
            let outcomes: Vec<String> = client.query(run, &[&task]).await.expect(task).iter().map(|row| row.get(0)).collect();
            assert!(!outcomes.iter().any(|outcome| outcome.contains("failed")), "{task}, {storage:?}: {outcomes:?}");
        }
        for view in ["rings", "workers", "maintenance_runs"] {
            client.query(&format!("SELECT * FROM awa_ingest.{view}"), &[]).await.expect(view);
        }
        client.query("SELECT awa_ingest.stop_worker()", &[]).await.expect("stop_worker");
    }
}

/// The rights that analyze_relation asks the session's user for.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_has_the_rights_on_the_heads() {
    for (storage, db, _) in databases().await {
        let client = operator(&db, "operator").await;
        for (table, privilege) in ["queue_enqueue_heads", "queue_claim_heads"]
            .into_iter()
            .flat_map(|table| ["INSERT", "UPDATE", "DELETE"].map(|p| (table, p)))
        {
            let may = "SELECT has_table_privilege($1, $2)";
            let may: bool = client.query_one(may, &[&storage.table(table), &privilege]).await.unwrap().get(0);
            assert!(may, "{privilege} on {table}, {storage:?}");
        }
    }
}

/// What an operator must not do. `{s}` stands for the storage's schema.
const FORBIDDEN: [&str; 14] = [
    "SELECT awa.enqueue('k')",
    "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]')",
    "SELECT * FROM awa.enqueue_columns('{k}')",
    "SELECT * FROM awa.enqueue_csv('kind\nk')",
    "COPY awa.ingest (kind) FROM STDIN",
    "INSERT INTO awa.ingest (kind) VALUES ('k')",
    "INSERT INTO {s}.ready_entries SELECT * FROM {s}.ready_entries",
    "INSERT INTO {s}.ready_entries_0 SELECT * FROM {s}.ready_entries_0",
    "INSERT INTO {s}.ready_segments SELECT * FROM {s}.ready_segments",
    "INSERT INTO {s}.deferred_jobs SELECT * FROM {s}.deferred_jobs",
    "UPDATE {s}.ready_entries SET priority = 1",
    "SELECT nextval('{s}.job_id_seq')",
    "CREATE TABLE {s}.mine (i int)",
    "SELECT awa_ingest.grant_operator(current_user)",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cannot_enqueue() {
    for (storage, db, _) in databases().await {
        enqueue(&db.connect().await, "mail").await.unwrap();
        let client = operator(&db, "operator").await;
        // discard() cuts segments of the embedded storage. Without rows they enqueue nothing.
        let cuts = |statement: &str| storage == Storage::Embedded && statement.contains("INTO {s}.ready_segments");
        for statement in FORBIDDEN.into_iter().filter(|statement| !cuts(statement)) {
            let statement = statement.replace("{s}", storage.schema());
            assert_eq!(failure(client.batch_execute(&statement).await).sqlstate, "42501", "{statement}, {storage:?}");
        }
    }
}

/// On the canonical engine there are no lanes to look after; once queue storage is active, granting again gives the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_for_the_storage_in_use() {
    let db = Db::of(Template::AwaCanonical).await;
    let superuser = db.connect().await;
    superuser.batch_execute("CREATE EXTENSION awa_ingest").await.unwrap();
    let client = operator(&db, "operator").await;
    assert_eq!(problems(&client).await, []);
    assert!(client.query("SELECT * FROM awa_ingest.lanes", &[]).await.unwrap().is_empty());
    superuser.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
    assert_eq!(failure(client.query("SELECT * FROM awa_ingest.lanes", &[]).await).sqlstate, "42501");
    let role: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    superuser.execute("SELECT awa_ingest.grant_operator($1)", &[&role]).await.unwrap();
    provision(&client, "mail").await.unwrap();
    assert_eq!(client.query("SELECT * FROM awa_ingest.lanes", &[]).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn role_names_of_any_kind() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        enqueue(&client, "mail").await.unwrap();
        for name in ["Upper Case", "quo\"te'd", "select", "with\\backslash", "%I"] {
            let role = format!("{name} {} operator", db.name());
            let quoted = format!("\"{}\"", role.replace('"', "\"\""));
            client.batch_execute(&format!("CREATE ROLE {quoted}")).await.unwrap();
            client.execute("SELECT awa_ingest.grant_operator($1)", &[&role]).await.expect(&role);
            client.batch_execute(&format!("SET ROLE {quoted}")).await.unwrap();
            assert_eq!(problems(&client).await, [], "{name}, {storage:?}");
            client.batch_execute("RESET ROLE").await.unwrap();
        }
        for unknown in [Some("no_such_role"), Some("public"), Some(""), None] {
            let refused = failure(client.execute("SELECT awa_ingest.grant_operator($1)", &[&unknown]).await);
            assert_eq!(refused.sqlstate, "42704", "{unknown:?}: {refused:?}");
        }
    }
}

/// Who may write the heads can have one name any sequence. The privileges that a lane's sequences get are not for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_names_another_sequence_gives_no_right_to_it() {
    for (storage, db, _) in databases().await {
        let superuser = db.connect().await;
        enqueue(&superuser, "mail").await.unwrap();
        let client = operator(&db, "operator").await;
        let ids = storage.table("job_id_seq");
        for side in ["enqueue", "claim"] {
            let heads = storage.table(&format!("queue_{side}_heads"));
            let renamed = client.batch_execute(&format!("UPDATE {heads} SET seq_name = 'job_id_seq'")).await;
            // The trigger on the embedded heads sets the name itself.
            assert_eq!(renamed.is_ok(), storage == Storage::Attached, "{side}");
            provision(&client, "mail").await.unwrap();
            let may = "SELECT has_sequence_privilege($1, 'SELECT, USAGE, UPDATE')";
            let may: bool = client.query_one(may, &[&ids]).await.unwrap().get(0);
            assert!(!may, "{side}, {storage:?}");
        }
    }
}
