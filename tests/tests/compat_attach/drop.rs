//! The extension does not go while awa's function is its code, and everything works after whatever else is dropped.

use awa_ingest_tests::{Db, Storage, Worker, failure, rows, stored_kinds};

use crate::setup::{assert_status, attached, companions, definition, insert, run, status, try_insert};

#[tokio::test(flavor = "multi_thread")]
async fn the_extension_stays_while_it_is_attached() {
    let db = attached().await;
    let client = db.connect().await;
    insert(&client, "'k'").await;
    let replaced = definition(&client).await;
    for drop in ["DROP EXTENSION awa_ingest", "DROP EXTENSION IF EXISTS awa_ingest", "DROP EXTENSION awa_ingest CASCADE"] {
        for allow in ["off", "on"] {
            let refused = failure(client.batch_execute(&format!("SET awa_ingest.allow_drop = {allow}; {drop}")).await);
            assert_eq!(refused.sqlstate, "2BP01", "{drop}: {refused:?}");
            assert!(refused.hint.contains("awa_ingest.detach"), "{drop}: {refused:?}");
        }
        assert_eq!((definition(&client).await, companions(&client).await), (replaced.clone(), 3), "{drop}");
        insert(&client, "'k'").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_it_goes_and_awa_works_on() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let original = definition(&client).await;
    run(&client, "BEGIN; SELECT awa_ingest.attach()").await;
    insert(&client, "'k'").await;
    run(&client, "COMMIT; BEGIN; SELECT awa_ingest.detach(); DROP EXTENSION awa_ingest").await;
    insert(&client, "'k'").await;
    run(&client, "ROLLBACK").await;
    assert_status(&client, "replaced", "rolled back").await;
    insert(&client, "'k'").await;

    run(&client, "SELECT awa_ingest.detach(); DROP EXTENSION awa_ingest").await;
    assert_eq!(definition(&client).await, original);
    insert(&client, "'k'").await;
    let left = "(SELECT proname FROM pg_proc WHERE probin LIKE '%awa_ingest%' UNION ALL SELECT nspname FROM pg_namespace WHERE nspname = 'awa_ingest')";
    assert_eq!(rows(&client, left, &[]).await, Vec::<serde_json::Value>::new());

    run(&client, "CREATE EXTENSION awa_ingest").await;
    assert_status(&client, "original", "a new extension").await;
    run(&client, "SELECT awa_ingest.attach()").await;
    insert(&client, "'k'").await;
    let worker = Worker::builder().queue("default").kind("k").start(&db).await;
    worker.wait_for(4).await;
    worker.stop().await;
}

/// Dropping all of awa takes the extension's functions in its schema along, and so the extension: refused while it is attached, or
/// done to the end. Either way there is a usable extension afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn awas_schema_may_go() {
    for detach in [false, true] {
        let db = attached().await;
        let client = db.connect().await;
        insert(&client, "'k'").await;
        if detach {
            run(&client, "SELECT awa_ingest.detach()").await;
        }
        match client.batch_execute("DROP SCHEMA awa CASCADE").await {
            Ok(()) => {
                run(&client, "DROP EXTENSION IF EXISTS awa_ingest; CREATE EXTENSION awa_ingest; SELECT awa.enqueue('again')").await;
                assert_eq!((status(&client).await, companions(&client).await), (None, 0));
                assert_eq!(stored_kinds(&client, Storage::Embedded).await, ["again"]);
            }
            refused => {
                let refused = failure(refused);
                assert!(!detach && refused.sqlstate == "2BP01" && refused.hint.contains("awa_ingest.detach"), "{refused:?}");
                insert(&client, "'k'").await;
            }
        }
    }
}

/// A restored older database: awa's tables are gone, and with their row types the function.
const DROP_AWAS_TABLES: &str = "DO $$ DECLARE r record; BEGIN
    FOR r IN SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind = 'v' LOOP
        EXECUTE format('DROP VIEW %s CASCADE', r.name);
    END LOOP;
    FOR r IN SELECT oid::regclass AS name FROM pg_class
             WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition LOOP
        EXECUTE format('DROP TABLE %s CASCADE', r.name);
    END LOOP; END $$";

#[tokio::test(flavor = "multi_thread")]
async fn awas_tables_may_go() {
    let db = attached().await;
    let client = db.connect().await;
    insert(&client, "'k'").await;
    run(&client, DROP_AWAS_TABLES).await;
    assert_eq!(status(&client).await, None);
    run(&client, "SELECT awa.enqueue('embedded'); SELECT awa_ingest.detach()").await;
    assert_eq!(stored_kinds(&client, Storage::Embedded).await, ["embedded"]);
    assert_eq!(failure(try_insert(&client, "'k'").await).sqlstate, "42883", "no function of that name");

    // The same with nothing to detach first, and with jobs that keep the extension for a reason of their own.
    run(
        &client,
        "TRUNCATE awa_ingest.ready_entries, awa_ingest.ready_segments; DROP EXTENSION awa_ingest; CREATE EXTENSION awa_ingest",
    )
    .await;
    assert_eq!((status(&client).await, companions(&client).await), (None, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_database_is_no_obstacle() {
    let db = attached().await;
    let other = Db::bare().await.connect().await;
    run(&other, &format!("DROP DATABASE {} WITH (FORCE)", db.name())).await;
}
