//! Dropping the extension: refused while its embedded storage has undelivered jobs, and complete when it is not refused.

use awa_ingest_tests::{Cluster, Db, Template, failure, jobs, rows};
use awa_model::InsertOpts;
use serde_json::json;
use tokio_postgres::Client;

/// A database whose extension belongs to a role of its own, so that DROP OWNED reaches it.
async fn owned_database() -> (Db, String) {
    let db = Db::bare().await;
    let owner = db.role("owner").await;
    let sql = format!("ALTER ROLE {owner} SUPERUSER; SET ROLE {owner}; CREATE EXTENSION awa_ingest");
    db.connect().await.batch_execute(&sql).await.expect(&sql);
    (db, owner)
}

/// Every statement that takes the extension, or its storage, away.
fn drops(owner: &str) -> Vec<String> {
    [
        "DROP EXTENSION awa_ingest",
        "DROP EXTENSION IF EXISTS awa_ingest",
        "DROP EXTENSION awa_ingest CASCADE",
        "DROP EXTENSION plpgsql, awa_ingest CASCADE",
        "DROP EXTENSION plpgsql CASCADE",
        "DROP SCHEMA awa_ingest CASCADE",
        "DROP SCHEMA awa CASCADE",
        "DROP SCHEMA public, awa CASCADE",
        &format!("DROP OWNED BY {owner}"),
        &format!("DROP OWNED BY {owner} CASCADE"),
        &format!("DROP OWNED BY pg_monitor, {owner} CASCADE"),
    ]
    .map(str::to_owned)
    .to_vec()
}

async fn enqueue_ready(client: &Client) -> i64 {
    jobs::enqueue(client, &jobs::job("step", json!({}))).await
}

async fn enqueue_deferred(client: &Client) -> i64 {
    let opts = InsertOpts { run_at: Some(chrono::Utc::now()), ..Default::default() };
    jobs::enqueue(client, &jobs::job_with("step", json!({}), opts)).await
}

async fn has_extension(client: &Client) -> bool {
    let sql = "SELECT FROM pg_extension WHERE extname = 'awa_ingest'";
    client.query_opt(sql, &[]).await.expect(sql).is_some()
}

async fn stored_jobs(client: &Client) -> usize {
    rows(client, "(SELECT job_id FROM awa_ingest.ready_entries UNION ALL SELECT job_id FROM awa_ingest.deferred_jobs)", &[])
        .await
        .len()
}

async fn assert_refused(client: &Client, drop: &str) {
    let before = stored_jobs(client).await;
    let refused = failure(client.batch_execute(drop).await);
    assert_eq!(refused.sqlstate, "2BP01", "{drop}: {refused:?}");
    assert!(refused.hint.contains("awa_ingest.allow_drop"), "{drop}: {refused:?}");
    assert_eq!(stored_jobs(client).await, before, "{drop}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_keep_the_extension() {
    let (db, owner) = owned_database().await;
    let client = db.connect().await;
    enqueue_ready(&client).await;
    for drop in drops(&owner) {
        assert_refused(&client, &drop).await;
    }
    // The same with the job in any other partition, and with a deferred job only.
    let turn =
        "TRUNCATE awa_ingest.ready_entries, awa_ingest.ready_segments; UPDATE awa_ingest.queue_ring_state SET current_slot = 15";
    client.batch_execute(turn).await.unwrap();
    enqueue_ready(&client).await;
    assert_refused(&client, "DROP EXTENSION awa_ingest").await;
    client.batch_execute("TRUNCATE awa_ingest.ready_entries, awa_ingest.ready_segments").await.unwrap();
    enqueue_deferred(&client).await;
    for drop in drops(&owner) {
        assert_refused(&client, &drop).await;
    }
    enqueue_ready(&client).await;
}

/// A job that its own transaction enqueued counts, and one that was rolled back does not.
#[tokio::test(flavor = "multi_thread")]
async fn the_guard_sees_what_the_transaction_sees() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    enqueue_ready(&client).await;
    assert_eq!(failure(client.batch_execute("DROP EXTENSION awa_ingest").await).sqlstate, "2BP01");
    client.batch_execute("ROLLBACK; DROP EXTENSION awa_ingest").await.unwrap();
    assert!(!has_extension(&client).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn allow_drop_lets_the_jobs_go() {
    let (_, owner) = owned_database().await;
    for number in 0..drops(&owner).len() {
        let (db, owner) = owned_database().await;
        let client = db.connect().await;
        enqueue_ready(&client).await;
        enqueue_deferred(&client).await;
        let drop = &drops(&owner)[number];
        client.batch_execute("SET awa_ingest.allow_drop = on").await.unwrap();
        match client.batch_execute(drop).await {
            Ok(()) => assert!(!has_extension(&client).await, "{drop}"),
            // PostgreSQL's own word: a schema that an extension brought goes with the extension only.
            refused => assert_eq!(failure(refused).sqlstate, "2BP01", "{drop}"),
        }
        client.batch_execute("DROP EXTENSION IF EXISTS awa_ingest").await.expect(drop);
        client.batch_execute("CREATE EXTENSION IF NOT EXISTS plpgsql; CREATE EXTENSION awa_ingest").await.expect(drop);
        assert_eq!(enqueue_ready(&client).await, 1, "a new storage after {drop}");
    }
}

/// Who owns schema awa may drop it, and the extension's functions with it, without any right to see the jobs.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_schema_awa_cannot_take_jobs_along() {
    let db = Db::embedded().await;
    let superuser = db.connect().await;
    let role = db.role("owner").await;
    superuser.batch_execute(&format!("ALTER SCHEMA awa OWNER TO {role}")).await.unwrap();
    let client = db.connect_as(&role).await;
    assert_eq!(failure(client.query("SELECT FROM awa_ingest.ready_entries", &[]).await).sqlstate, "42501");
    for deferred in [false, true] {
        let statement = "TRUNCATE awa_ingest.ready_entries, awa_ingest.ready_segments, awa_ingest.deferred_jobs";
        superuser.batch_execute(statement).await.unwrap();
        if deferred {
            enqueue_deferred(&superuser).await
        } else {
            enqueue_ready(&superuser).await
        };
        let refused = failure(client.batch_execute("DROP SCHEMA awa CASCADE").await);
        assert_eq!(refused.sqlstate, "2BP01", "{refused:?}");
        assert!(refused.hint.contains("awa_ingest.allow_drop"), "{refused:?}");
        assert!(has_extension(&superuser).await && stored_jobs(&superuser).await == 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allow_drop_is_for_superusers() {
    let db = Db::embedded().await;
    let role = db.role("somebody").await;
    let client = db.connect_as(&role).await;
    client.batch_execute("LOAD 'awa_ingest'").await.expect_err("not for everybody either");
    let superuser = db.connect().await;
    superuser.batch_execute(&format!("SELECT awa_ingest.grant_producer('{role}')")).await.unwrap();
    enqueue_ready(&client).await;
    assert_eq!(failure(client.batch_execute("SET awa_ingest.allow_drop = on").await).sqlstate, "42501");
}

/// Lanes, with their sequences, are no reason to refuse, and need no CASCADE.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_without_jobs_goes_without_ado() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    for _ in 0..2 {
        for queue in ["default", "odd \"name\""] {
            let opts = InsertOpts { queue: queue.into(), unique: Some(Default::default()), ..Default::default() };
            jobs::enqueue(&client, &jobs::job_with("step", json!(queue), opts)).await;
        }
        let sequences = "(SELECT FROM pg_class WHERE relkind = 'S' AND relnamespace = 'awa_ingest'::regnamespace)";
        // Those of ids, of jobs and of maintenance_runs, and two a lane.
        assert_eq!(rows(&client, sequences, &[]).await.len(), 2 + 2 * 2);
        client.batch_execute("TRUNCATE awa_ingest.ready_entries, awa_ingest.ready_segments").await.unwrap();

        client.batch_execute("DROP EXTENSION awa_ingest").await.expect("no jobs, no CASCADE");
        let left =
            "(SELECT FROM pg_class WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('awa', 'awa_ingest')))";
        assert!(rows(&client, left, &[]).await.is_empty());
        let functions =
            "(SELECT FROM pg_proc WHERE pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('awa', 'awa_ingest')))";
        assert!(rows(&client, functions, &[]).await.is_empty());
        assert!(rows(&client, "(SELECT FROM pg_event_trigger)", &[]).await.is_empty());
        client.batch_execute("CREATE EXTENSION awa_ingest").await.expect("and again");
    }
    assert_eq!(enqueue_ready(&client).await, 1, "a new storage starts from the first id");
}

/// The guard is about this extension: what is dropped beside it is none of its business.
#[tokio::test(flavor = "multi_thread")]
async fn other_drops_are_left_alone() {
    let db = Db::embedded().await;
    let (client, other) = (db.connect().await, db.role("other").await);
    let setup = format!(
        "CREATE SCHEMA other AUTHORIZATION {other}; CREATE SCHEMA awa_ingest_not;
         SELECT awa_ingest.grant_producer('{other}')"
    );
    client.batch_execute(&setup).await.expect(&setup);
    enqueue_ready(&client).await;
    let harmless = [
        "DROP SCHEMA awa_ingest_not",
        "DROP SCHEMA IF EXISTS nowhere CASCADE",
        "DROP EXTENSION IF EXISTS nothing CASCADE",
        &format!("DROP OWNED BY {other} CASCADE"),
        &format!("DROP ROLE {other}"),
    ];
    for drop in harmless {
        client.batch_execute(drop).await.expect(drop);
    }
    assert_eq!(stored_jobs(&client).await, 1);
}

/// Jobs are UTF-8 in awa's keys and in Rust: another encoding is refused at once, not at the first umlaut.
#[tokio::test(flavor = "multi_thread")]
async fn other_encodings_are_refused() {
    let cluster = Cluster::start(&[]);
    let superuser = Db::on(cluster.clone(), Template::Bare).await.connect().await;
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let create = format!("CREATE DATABASE {encoding} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'");
        superuser.batch_execute(&create).await.expect(&create);
        let url = cluster.url("postgres", &encoding.to_lowercase());
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect(&url);
        tokio::spawn(connection);
        let refused = failure(client.batch_execute("CREATE EXTENSION awa_ingest").await);
        assert_eq!(refused.sqlstate, "0A000", "{encoding}: {refused:?}");
        assert!(refused.message.contains(encoding) && refused.hint.contains("UTF8"), "{refused:?}");
        assert!(rows(&client, "(SELECT FROM pg_namespace WHERE nspname LIKE 'awa%')", &[]).await.is_empty());
    }
}
