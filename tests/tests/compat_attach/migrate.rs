//! `awa migrate` over an attached database: nothing to do, or the function is awa's again and may be replaced again.

use awa_ingest_tests::{Db, Worker, rows};
use serde_json::json;
use tokio_postgres::Client;

use crate::setup::{assert_status, attached, companions, definition, identity, insert, numbers, ready_args, run};

/// Takes awa back to `version` in its own books, so that its next migration runs all later steps again.
async fn migrate_again(db: &Db, client: &Client, version: i32) {
    run(client, &format!("DELETE FROM awa.schema_version WHERE version > {version}")).await;
    db.migrate_awa().await;
    let versions = rows(client, "(SELECT max(version) AS version FROM awa.schema_version)", &[]).await;
    assert_eq!(versions, [json!({"version": 40})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_with_nothing_to_do_leaves_it() {
    let db = attached().await;
    let client = db.connect().await;
    let replaced = definition(&client).await;
    db.migrate_awa().await;
    assert_status(&client, "replaced", "migrated").await;
    assert_eq!((definition(&client).await, companions(&client).await), (replaced, 3));
    insert(&client, "'k'").await;
}

/// Also steps from before the function had its present arguments.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_makes_the_function_is_noticed() {
    for version in [17, 11] {
        let db = attached().await;
        let client = db.connect().await;
        let (replaced, before) = (definition(&client).await, identity(&client).await);
        insert(&client, "'k', p_args => '1'").await;
        migrate_again(&db, &client, version).await;
        assert_status(&client, "overwritten", "migrated").await;
        let awas = definition(&client).await;
        assert_ne!(awas, replaced);
        insert(&client, "'k', p_args => '2'").await;

        run(&client, "SELECT awa_ingest.attach()").await;
        assert_status(&client, "replaced", "attached again").await;
        assert_eq!((definition(&client).await, companions(&client).await), (replaced, 3));
        if version == 17 {
            assert_eq!(identity(&client).await, before);
        }
        insert(&client, "'k', p_args => '3'").await;

        run(&client, "SELECT awa_ingest.detach()").await;
        assert_status(&client, "original", "detached").await;
        assert_eq!((definition(&client).await, companions(&client).await), (awas, 0));
        insert(&client, "'k', p_args => '4'").await;
        assert_eq!(ready_args(&client).await, numbers(1, 4));
        let worker = Worker::builder().queue("default").kind("k").start(&db).await;
        worker.wait_for(4).await;
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn detaching_after_a_migration_leaves_awas_function() {
    let db = attached().await;
    let client = db.connect().await;
    migrate_again(&db, &client, 17).await;
    let awas = definition(&client).await;
    run(&client, "SELECT awa_ingest.detach()").await;
    assert_eq!((definition(&client).await, companions(&client).await), (awas.clone(), 0));
    assert_status(&client, "original", "detached").await;
    insert(&client, "'k'").await;
    run(&client, "DROP EXTENSION awa_ingest").await;
    assert_eq!(definition(&client).await, awas);
    insert(&client, "'k'").await;
}

/// A migration that is rolled back leaves the replacement, and the session that saw both goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_rolled_back_never_was() {
    let client = attached().await.connect().await;
    let replaced = definition(&client).await;
    for number in 1..=2 {
        run(&client, "BEGIN").await;
        for (version, _, sql) in awa_model::migrations::migration_sql_range(17, 40) {
            client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("migration {version}: {error}"));
        }
        assert_status(&client, "overwritten", "in the transaction").await;
        insert(&client, "'lost'").await;
        run(&client, "ROLLBACK").await;
        assert_status(&client, "replaced", "rolled back").await;
        assert_eq!(definition(&client).await, replaced);
        insert(&client, &format!("'k', p_args => '{number}'")).await;
    }
    assert_eq!(ready_args(&client).await, numbers(1, 2));
}
