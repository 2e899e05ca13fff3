//! Servers with workers, and what tests wait for on them.

use std::sync::{Arc, OnceLock};

use awa_ingest_tests::{Cluster, Db, jobs, wait_until};
use awa_model::{QueueStorage, QueueStorageConfig};
use tokio_postgres::{Client, NoTls};

/// What a server with a launcher needs.
pub const PRELOADED: [(&str, &str); 2] = [("shared_preload_libraries", "awa_ingest"), ("max_worker_processes", "64")];

/// A server with a launcher, for tests that change nothing on it but their own database.
pub fn preloaded() -> Arc<Cluster> {
    static SHARED: OnceLock<Arc<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(&PRELOADED)).clone()
}

/// A server with a launcher and these settings, of the test's own.
pub fn preloaded_with(settings: &[(&str, &str)]) -> Arc<Cluster> {
    Cluster::start(&[&PRELOADED[..], settings].concat())
}

const MAINTENANCE: &str = "FROM awa_ingest.workers WHERE database = current_database() AND role = 'maintenance'";

/// Waits until the database has its worker; returns its process.
pub async fn worker(client: &Client) -> i32 {
    wait_until(client, &format!("SELECT count(*) = 1 {MAINTENANCE}")).await;
    client.query_one(&format!("SELECT pid {MAINTENANCE}"), &[]).await.expect("the worker").get(0)
}

/// Waits until the database has a worker that is not `pid`; returns its process.
pub async fn worker_other_than(client: &Client, pid: i32) -> i32 {
    wait_until(client, &format!("SELECT count(*) = 1 AND min(pid) <> {pid} {MAINTENANCE}")).await;
    worker(client).await
}

/// Waits until the process is gone.
pub async fn wait_until_gone(client: &Client, pid: i32) {
    wait_until(client, &format!("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})")).await;
}

/// Whether the database has a worker.
pub async fn has_worker(client: &Client) -> bool {
    client.query_one(&format!("SELECT count(*) > 0 {MAINTENANCE}"), &[]).await.expect("workers").get(0)
}

/// Waits until a run is recorded for which the condition holds.
pub async fn wait_for_run(client: &Client, condition: &str) {
    wait_until(client, &format!("SELECT EXISTS (SELECT FROM awa_ingest.maintenance_runs WHERE {condition})")).await;
}

/// Waits until the first pass of statistics is over.
pub async fn wait_for_statistics(client: &Client) {
    wait_for_run(client, "task = 'statistics' AND relation LIKE '%.queue_claim_heads'").await;
    wait_until(
        client,
        "SELECT NOT EXISTS (SELECT FROM awa_ingest.workers WHERE database = current_database() AND role = 'statistics')",
    )
    .await;
}

/// Changes a setting of the whole server, or resets it to what the server was started with.
pub async fn set(client: &Client, name: &str, value: Option<&str>) {
    let change = value.map_or_else(|| format!("RESET {name}"), |value| format!("SET {name} = '{value}'"));
    client.execute(&format!("ALTER SYSTEM {change}"), &[]).await.expect(&change);
    client.query_one("SELECT pg_reload_conf()", &[]).await.expect("pg_reload_conf");
}

/// Writes a job, and has the server's statistics know of it: a pass leaves alone what has not changed.
pub async fn change(client: &Client) {
    jobs::enqueue_batch(client, &[jobs::job("some", serde_json::json!({}))]).await;
    run(client, &["SELECT pg_stat_force_next_flush()", "SELECT"]).await;
}

/// A number that statements of all sessions read at once, whatever their snapshots: 1 lets `slow` through, 2 holds it.
pub async fn make_gate(client: &Client) {
    let sql = "
        CREATE SEQUENCE public.gate;
        SELECT nextval('public.gate');
        CREATE FUNCTION public.slow(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            WHILE (SELECT last_value FROM public.gate) = 2 LOOP
                PERFORM pg_catalog.pg_sleep(0.01);
            END LOOP;
            RETURN value;
        END $$;
        -- The same, and not to be cancelled.
        CREATE FUNCTION public.stubborn(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
        BEGIN
            LOOP
                BEGIN
                    RETURN public.slow(value);
                EXCEPTION WHEN query_canceled THEN
                END;
            END LOOP;
        END $$";
    client.batch_execute(sql).await.expect(sql);
}

/// Opens or closes the gate.
pub async fn set_gate(client: &Client, open: bool) {
    client.execute("SELECT setval('public.gate', $1)", &[&if open { 1_i64 } else { 2 }]).await.expect("setval");
}

/// Moves awa's queue ring on by one slot.
pub async fn rotate(db: &Db) {
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
    let pool = db.pool().await;
    let outcome = store.rotate(&pool).await.expect("rotate");
    assert!(matches!(outcome, awa_model::queue_storage::RotateOutcome::Rotated { .. }), "{outcome:?}");
    pool.close().await;
}

/// Runs statements one by one, as a client that sends a script does.
pub async fn run(client: &Client, statements: &[&str]) {
    for statement in statements {
        client.execute(*statement, &[]).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
}

/// A connection to another database of the server.
pub async fn another(db: &Db) -> Client {
    let url = db.cluster().url("postgres", "postgres");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection to another database");
    tokio::spawn(connection);
    client
}

/// Closes a connection, and waits until it is gone.
pub async fn leave(client: Client, observer: &Client) {
    let pid = awa_ingest_tests::backend_pid(&client).await;
    drop(client);
    wait_until_gone(observer, pid).await;
}
