//! Workers without a launcher.

use std::sync::{Arc, OnceLock};

use awa_ingest_tests::{Cluster, Db, Template, failure, rows, wait_until};
use tokio_postgres::Client;

use crate::support::{another, has_worker, leave, run, wait_for_statistics, wait_until_gone, worker, worker_other_than};

fn server() -> Arc<Cluster> {
    static SHARED: OnceLock<Arc<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(&[("max_worker_processes", "32")])).clone()
}

async fn start(client: &Client) -> Option<i32> {
    client.query_one("SELECT awa_ingest.start_worker()", &[]).await.expect("start_worker").get(0)
}

#[tokio::test]
async fn a_worker_is_started_once_and_stopped() {
    let db = Db::on(server(), Template::Awa).await;
    let client = db.connect().await;
    assert!(!has_worker(&client).await);
    let pid = start(&client).await.expect("a process");
    assert_eq!(worker(&client).await, pid);
    assert_eq!(start(&client).await, Some(pid));
    wait_for_statistics(&client).await;
    let stop = "SELECT awa_ingest.stop_worker()";
    assert!(client.query_one(stop, &[]).await.expect(stop).get::<_, bool>(0));
    assert!(!has_worker(&client).await);
    assert!(!client.query_one(stop, &[]).await.expect(stop).get::<_, bool>(0));
    let again = start(&client).await.expect("a process");
    assert_ne!(again, pid);
}

#[tokio::test]
async fn of_two_that_are_started_at_once_one_works() {
    let db = Db::on(server(), Template::Embedded).await;
    let (one, two) = (db.connect().await, db.connect().await);
    let (first, second) = tokio::join!(start(&one), start(&two));
    let pid = worker(&one).await;
    assert!([first, second].contains(&Some(pid)));
    let alive =
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'awa_ingest maintenance'";
    wait_until(&one, alive).await;
}

#[tokio::test]
async fn it_steps_aside_for_a_copy_and_comes_back() {
    let db = Db::on(server(), Template::Embedded).await;
    let client = db.connect().await;
    let pid = start(&client).await.expect("a process");
    worker(&client).await;
    let admin = another(&db).await;
    leave(client, &admin).await;
    run(&admin, &[&format!("CREATE DATABASE {0}_copy TEMPLATE {0}", db.name())]).await;
    worker_other_than(&db.connect().await, pid).await;
    // The copy has none: nobody asked for it.
    let copy = format!("(SELECT pid FROM pg_stat_activity WHERE datname = '{}_copy')", db.name());
    assert!(rows(&admin, &copy, &[]).await.is_empty());
}

#[tokio::test]
async fn it_leaves_a_template_and_comes_back() {
    let db = Db::on(server(), Template::Embedded).await;
    let client = db.connect().await;
    let pid = start(&client).await.expect("a process");
    worker(&client).await;
    run(&client, &[&format!("ALTER DATABASE {} IS_TEMPLATE true", db.name())]).await;
    wait_until_gone(&client, pid).await;
    assert_eq!(failure(client.execute("SELECT awa_ingest.start_worker()", &[]).await).sqlstate, "55000");
    run(&client, &[&format!("ALTER DATABASE {} IS_TEMPLATE false", db.name())]).await;
    worker_other_than(&client, pid).await;
}

#[tokio::test]
async fn it_lets_its_database_be_dropped_and_ends() {
    let db = Db::on(server(), Template::Embedded).await;
    let client = db.connect().await;
    let pid = start(&client).await.expect("a process");
    worker(&client).await;
    let admin = another(&db).await;
    leave(client, &admin).await;
    run(&admin, &[&format!("DROP DATABASE {}", db.name())]).await;
    wait_until_gone(&admin, pid).await;
    wait_until(&admin, "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'awa_ingest waiter'").await;
}

#[tokio::test]
async fn it_ends_with_its_extension() {
    let db = Db::on(server(), Template::Embedded).await;
    let client = db.connect().await;
    let pid = start(&client).await.expect("a process");
    worker(&client).await;
    run(&client, &["DROP EXTENSION awa_ingest"]).await;
    wait_until_gone(&client, pid).await;
}

#[tokio::test]
async fn a_server_without_slots_says_so() {
    let cluster = Cluster::start(&[("max_worker_processes", "0"), ("max_logical_replication_workers", "0")]);
    let db = Db::on(cluster, Template::Embedded).await;
    let refused = failure(db.connect().await.execute("SELECT awa_ingest.start_worker()", &[]).await);
    assert_eq!(refused.sqlstate, "53400");
    assert!(refused.hint.contains("max_worker_processes"), "{refused:?}");
}
