//! Who may call the functions of awa's clients: nobody but by a grant, and a producer gets what enqueueing needs.

use awa_ingest_tests::copy::{Format, copy_rows};
use awa_ingest_tests::{Db, Template, failure, rows};
use serde_json::Value;
use tokio_postgres::Client;

use crate::calls::{Way, deferred, keyed, plain};
use crate::canonical::canonical;
use crate::{attach, attached, old};

const FUNCTIONS: [&str; 3] =
    ["insert_jobs_compat_batch('{k}')", "insert_many_skip_unique_conflicts('[{\"kind\": \"k\"}]')", "last_ingest_jobs()"];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_public() {
    let db = attached().await;
    let role = db.role("nobody").await;
    db.connect().await.batch_execute(&format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}")).await.unwrap();
    let client = db.connect_as(&role).await;
    for function in FUNCTIONS {
        let refused = failure(client.query(&format!("SELECT * FROM awa_ingest.{function}"), &[]).await);
        assert_eq!(refused.sqlstate, "42501", "{function}: {refused:?}");
        assert!(refused.message.contains("function"), "{function}: it is the function that is refused: {refused:?}");
    }
    let public =
        "(SELECT p.oid::regprocedure AS function FROM pg_proc AS p, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS acl
        WHERE pronamespace = 'awa_ingest'::regnamespace AND acl.grantee = 0)";
    assert_eq!(rows(&db.connect().await, public, &[]).await, [] as [Value; 0]);
}

/// Everything a producer does, on lanes that are new to it, on those of others, and with keys of its own.
async fn produce(client: &Client, key: u32, queue: &str) {
    for (key, way) in (key..).step_by(10).zip(Way::SKIPPING) {
        let batch = [plain(queue, 0), keyed(key, queue, 1), deferred(keyed(key + 1, "of all", 2)), keyed(key, "of all", 3)];
        let outcomes = way.skip(client, &batch).await.unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false], "{way:?}");
    }
    for way in Way::RAISING {
        way.enqueue(client, &[plain(queue, 0), deferred(plain("of all", 1))])
            .await
            .unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        let refused = failure(way.enqueue(client, &[plain(queue, 0), keyed(key, queue, 1)]).await);
        assert_eq!(refused.sqlstate, "23505", "{way:?}: {refused:?}");
    }
    awa_ingest_tests::jobs::enqueue(client, &awa_ingest_tests::jobs::job("step", serde_json::json!({}))).await;
    client.query_one("SELECT ready FROM awa_ingest.status()", &[]).await.expect("status");
}

/// A database of an ordinary role, as most are, on the engine that a new one has.
async fn canonical_of_a_role() -> Db {
    let db = Db::of(Template::Bare).await;
    let owner = db.role("owner").await;
    let superuser = db.connect().await;
    superuser.batch_execute(&format!("GRANT CREATE ON DATABASE {} TO {owner}", db.name())).await.unwrap();
    let pool = sqlx::PgPool::connect(&db.url_of(&owner)).await.unwrap();
    awa_model::migrations::run(&pool).await.expect("awa migrate");
    pool.close().await;
    superuser.batch_execute("CREATE EXTENSION awa_ingest").await.unwrap();
    attach(db).await
}

async fn producers_produce(db: Db) {
    let superuser = db.connect().await;
    let mut clients = Vec::new();
    for (key, name) in [(1000, "first"), (2000, "second")] {
        let role = db.role(name).await;
        superuser.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect("grant_producer");
        let client = db.connect_as(&role).await;
        produce(&client, key, name).await;
        clients.push(client);
    }
    produce(&clients[0], 3000, "second").await;
    produce(&superuser, 4000, "of the superuser").await;
    produce(&clients[1], 5000, "of the superuser").await;
    for table in ["awa.jobs_hot", "awa.scheduled_jobs", "awa.ready_entries", "awa.deferred_jobs"] {
        for statement in ["SELECT args FROM", "UPDATE", "DELETE FROM", "TRUNCATE"] {
            let set = if statement == "UPDATE" { " SET priority = 1" } else { "" };
            let sql = format!("{statement} {table}{set}");
            assert_eq!(failure(clients[0].batch_execute(&sql).await).sqlstate, "42501", "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_enqueues_on_queue_storage() {
    producers_produce(attached().await).await;
    producers_produce(attach(Db::awa_of_a_role().await.0).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_enqueues_on_the_canonical_engine() {
    producers_produce(canonical().await).await;
    producers_produce(canonical_of_a_role().await).await;
}

/// The grant has what enqueues; the rights to read are another matter.
#[tokio::test(flavor = "multi_thread")]
async fn reading_is_not_granted() {
    for db in [attached().await, canonical().await] {
        let role = db.role("producer").await;
        db.connect().await.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect("grant_producer");
        let client = db.connect_as(&role).await;
        copy_rows(&client, "awa.ingest", Format::Csv, &[plain("q", 0)]).await.expect("COPY");
        let refused = failure(client.query("SELECT * FROM awa_ingest.last_ingest_jobs()", &[]).await);
        assert_eq!(refused.sqlstate, "42501", "{refused:?}");
        for function in &FUNCTIONS[..2] {
            assert_eq!(client.query(&format!("SELECT id FROM awa_ingest.{function}"), &[]).await.expect(function).len(), 1);
        }
    }
    // awa's own function is PUBLIC's, as awa has it; replaced it takes no more than the others. (On the canonical engine it reads what it
    // wrote, as awa's does.)
    let db = attached().await;
    let role = db.role("client").await;
    db.connect().await.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect("grant_producer");
    old::insert(&db.connect_as(&role).await, "awa", &plain("new", 1)).await.expect("insert_job_compat");
}
