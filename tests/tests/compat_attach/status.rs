//! What `awa_ingest.status()` says of the function, for everything that may have happened to it.

use awa_ingest_tests::{Db, Template, failure};

use tokio_postgres::Client;

use crate::setup::{ANOTHER_ROW_TYPE, assert_status, attached, insert, run, status, try_insert};

#[tokio::test(flavor = "multi_thread")]
async fn the_columns_come_last() {
    let client = Db::embedded().await.connect().await;
    let statement = client.prepare("SELECT * FROM awa_ingest.status()").await.unwrap();
    let names: Vec<&str> = statement.columns().iter().map(|column| column.name()).collect();
    assert_eq!(
        names[..8],
        ["extension_version", "storage", "storage_schema", "engine", "awa_schema_version", "ready", "problem", "hint"]
    );
    assert_eq!(names[8..], ["insert_job_compat", "insert_job_compat_problem"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_awa_there_is_no_function() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    assert_eq!(status(&client).await, None);
    db.migrate_awa().await;
    assert_status(&client, "original", "migrated").await;
}

/// A replacement that is another schema's writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_misfit_is_told_and_refuses() {
    let changes = [
        (
            "INSERT INTO awa.schema_version (version, description) VALUES (43, 'newer')",
            "DELETE FROM awa.schema_version WHERE version = 43",
        ),
        (
            "CREATE TABLE saved AS SELECT * FROM awa.schema_version WHERE version = 40; DELETE FROM awa.schema_version WHERE version = 40",
            "INSERT INTO awa.schema_version TABLE saved",
        ),
    ];
    let client = attached().await.connect().await;
    for (change, back) in changes {
        insert(&client, "'before'").await;
        run(&client, change).await;
        assert_status(&client, "misfit", change).await;
        assert_refuses(&client, change).await;
        run(&client, back).await;
        assert_status(&client, "replaced", back).await;
    }
}

/// Nor does one whose row type is another than when it was attached. The way back is open.
#[tokio::test(flavor = "multi_thread")]
async fn another_row_type_is_a_misfit() {
    let client = attached().await.connect().await;
    insert(&client, "'before'").await;
    run(&client, ANOTHER_ROW_TYPE).await;
    assert_refuses(&client, "another row type").await;
    assert_status(&client, "misfit", "another row type").await;
    run(&client, "SELECT awa_ingest.detach()").await;
    assert_status(&client, "unknown", "not awa's row type either").await;
    insert(&client, "'after'").await;
}

async fn assert_refuses(client: &Client, when: &str) {
    let answer = try_insert(client, "'while'").await;
    assert!(answer.is_err(), "{when}: {answer:?}");
    let refused = failure(answer);
    assert_eq!(refused.sqlstate, "55000", "{when}: {refused:?}");
    assert!(!refused.hint.is_empty(), "{when}: {refused:?}");
}

/// Dropped by its owner, it is missing, and may come back with the next migration.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_was_dropped_is_missing() {
    for db in [Db::awa().await, attached().await] {
        let client = db.connect().await;
        run(&client, "DROP FUNCTION awa.insert_job_compat").await;
        assert_status(&client, "missing", "dropped").await;
        assert_eq!(failure(client.batch_execute("SELECT awa_ingest.attach()").await).sqlstate, "55000");
        assert_status(&client, "missing", "not attached").await;
        run(&client, "SELECT awa_ingest.detach()").await;
        run(&client, "SELECT awa.enqueue('k')").await;

        run(&client, "DELETE FROM awa.schema_version WHERE version > 17").await;
        db.migrate_awa().await;
        assert_status(&client, "original", "made anew by awa").await;
        run(&client, "SELECT awa_ingest.attach()").await;
        insert(&client, "'k'").await;
        run(&client, "SELECT awa_ingest.detach()").await;
        assert_status(&client, "original", "and detached").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_may_ask() {
    let db = attached().await;
    let role = db.role("producer").await;
    run(&db.connect().await, &format!("SELECT awa_ingest.grant_producer('{role}')")).await;
    assert_status(&db.connect_as(&role).await, "replaced", "asked by a producer").await;
}

/// What is said follows the transaction that asks.
#[tokio::test(flavor = "multi_thread")]
async fn another_sessions_doings_are_seen_when_they_are_committed() {
    let db = Db::of(Template::Awa).await;
    let (client, other) = (db.connect().await, db.connect().await);
    assert_status(&other, "original", "before").await;
    run(&client, "BEGIN; SELECT awa_ingest.attach()").await;
    assert_status(&other, "original", "not committed").await;
    run(&client, "COMMIT").await;
    assert_status(&other, "replaced", "committed").await;
}
