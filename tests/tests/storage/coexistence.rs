//! Installing and dropping the extension leaves an awa database what it was.

use std::collections::BTreeSet;

use awa_ingest_tests::{Db, Template, Worker, assert_same_rows, failure, jobs, rows};
use awa_model::{QueueStorage, QueueStorageConfig};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// Everything in schema `awa` that is no member of an extension, with its definition, owner and privileges.
const AWAS_OBJECTS: &str = "(
    WITH members AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'),
    objects AS (
        SELECT 'pg_class'::regclass AS classid, oid AS objid, relkind::text || ' ' || relname AS name, relowner AS owner,
               relacl::text AS acl, coalesce((SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
               FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), '') AS definition
        FROM pg_class AS c WHERE relnamespace = 'awa'::regnamespace
        UNION ALL
        SELECT 'pg_proc'::regclass, oid, oid::regprocedure::text, proowner, proacl::text, pg_get_functiondef(oid)
        FROM pg_proc WHERE pronamespace = 'awa'::regnamespace
        UNION ALL
        SELECT 'pg_type'::regclass, oid, 'type ' || typname, typowner, typacl::text, typtype::text
        FROM pg_type WHERE typnamespace = 'awa'::regnamespace AND typtype = 'e'
        UNION ALL
        SELECT 'pg_trigger'::regclass, t.oid, 'trigger ' || tgrelid::regclass || ' ' || tgname, 10, NULL, pg_get_triggerdef(t.oid)
        FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = tgrelid
        WHERE relnamespace = 'awa'::regnamespace AND NOT tgisinternal
        UNION ALL
        SELECT 'pg_namespace'::regclass, oid, 'schema', nspowner, nspacl::text, '' FROM pg_namespace WHERE nspname = 'awa'
    )
    SELECT name, owner, acl, definition FROM objects
    WHERE (classid, objid) NOT IN (SELECT classid, objid FROM members))";

async fn awas_objects(client: &Client) -> Vec<Value> {
    let objects = rows(client, AWAS_OBJECTS, &[]).await;
    assert!(objects.len() > 500, "the query finds awa's objects: {}", objects.len());
    objects
}

async fn worker_drains(db: &Db, count: usize) {
    let worker = Worker::builder().queue("default").kind("step").start(db).await;
    worker.wait_for(count).await;
    let ids: BTreeSet<_> = worker.stop().await.iter().map(|job| job.id).collect();
    assert_eq!(ids.len(), count);
}

fn some_jobs() -> Vec<awa_model::InsertParams> {
    (0..20).map(|n| jobs::job("step", json!(n))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn creating_the_extension_changes_nothing_of_awas() {
    let db = Db::of(Template::AwaOnly).await;
    let client = db.connect().await;
    let before = awas_objects(&client).await;
    client.batch_execute("CREATE EXTENSION awa_ingest").await.unwrap();
    assert_same_rows("awa's objects", &before, &awas_objects(&client).await);
}

/// awa migrated into a database with the extension is what awa makes of an empty one.
#[tokio::test(flavor = "multi_thread")]
async fn migrating_after_the_extension_gives_the_same_awa() {
    let (fresh, with_extension) = (Db::of(Template::AwaCanonical).await, Db::embedded().await);
    with_extension.migrate_awa().await;
    let (fresh, with_extension) = (fresh.connect().await, with_extension.connect().await);
    assert_same_rows("awa's objects", &awas_objects(&fresh).await, &awas_objects(&with_extension).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_extension_leaves_awa_whole() {
    for drop_extension in ["DROP EXTENSION awa_ingest", "DROP EXTENSION awa_ingest CASCADE"] {
        let db = Db::awa().await;
        dropped_leaves_awa_whole(&db, drop_extension).await;
    }
}

/// The extension made schema `awa` here, and still must not take it along.
#[tokio::test(flavor = "multi_thread")]
async fn dropping_an_extension_that_was_there_first_leaves_awa_whole() {
    for drop_extension in ["DROP EXTENSION awa_ingest", "DROP EXTENSION awa_ingest CASCADE"] {
        let db = Db::embedded().await;
        db.migrate_awa().await;
        db.connect().await.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
        dropped_leaves_awa_whole(&db, drop_extension).await;
    }
}

async fn dropped_leaves_awa_whole(db: &Db, drop_extension: &str) {
    let client = db.connect().await;
    jobs::enqueue_batch(&client, &some_jobs()).await;
    let tables = ["awa.ready_entries", "awa.ready_segments", "awa.queue_enqueue_heads", "awa.queue_claim_heads"];
    let objects = awas_objects(&client).await;
    let mut contents = Vec::new();
    for table in tables {
        contents.push(rows(&client, table, &[]).await);
    }

    client.batch_execute(drop_extension).await.expect(drop_extension);
    assert_same_rows(drop_extension, &objects, &awas_objects(&client).await);
    for (table, content) in tables.into_iter().zip(contents) {
        assert_same_rows(table, &content, &rows(&client, table, &[]).await);
    }
    let gone = failure(jobs::try_enqueue(&client, &jobs::job("step", json!({}))).await);
    assert_eq!(gone.sqlstate, "42883", "{gone:?}");

    let store = QueueStorage::new(QueueStorageConfig::default()).unwrap();
    store.enqueue_params_copy(&db.pool().await, &some_jobs()).await.unwrap();
    worker_drains(db, 40).await;

    client.batch_execute("CREATE EXTENSION awa_ingest").await.expect("the extension can come back");
    jobs::enqueue_batch(&client, &some_jobs()).await;
    worker_drains(db, 20).await;
}
