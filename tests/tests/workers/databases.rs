//! What others do with a database that has a worker: they never wait for it longer than a moment.

use awa_ingest_tests::{Db, Template, failure, wait_until, within};

use crate::support::{another, leave, preloaded, run, wait_until_gone, worker, worker_other_than};

#[tokio::test]
async fn it_can_be_dropped() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let (client, admin) = (db.connect().await, another(&db).await);
    let pid = worker(&client).await;
    leave(client, &admin).await;
    run(&admin, &[&format!("DROP DATABASE {}", db.name())]).await;
    wait_until_gone(&admin, pid).await;
}

#[tokio::test]
async fn it_can_be_dropped_with_force() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let admin = another(&db).await;
    let pid = worker(&db.connect().await).await;
    run(&admin, &[&format!("DROP DATABASE {} WITH (FORCE)", db.name())]).await;
    wait_until_gone(&admin, pid).await;
}

#[tokio::test]
async fn it_can_be_copied_and_both_have_workers_then() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let (client, admin) = (db.connect().await, another(&db).await);
    let pid = worker(&client).await;
    leave(client, &admin).await;
    let copy = format!("{}_copy", db.name());
    run(&admin, &[&format!("CREATE DATABASE {copy} TEMPLATE {}", db.name())]).await;
    worker_other_than(&db.connect().await, pid).await;
    wait_until(
        &admin,
        &format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = '{copy}' AND backend_type = 'awa_ingest maintenance'"),
    )
    .await;
}

#[tokio::test]
async fn it_can_be_renamed() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let (client, admin) = (db.connect().await, another(&db).await);
    worker(&client).await;
    leave(client, &admin).await;
    run(&admin, &[&format!("ALTER DATABASE {0} RENAME TO {0}_renamed", db.name())]).await;
    let renamed = format!(
        "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = '{}_renamed' AND backend_type = 'awa_ingest maintenance'",
        db.name()
    );
    wait_until(&admin, &renamed).await;
}

#[tokio::test]
async fn templates_are_left_alone() {
    let db = Db::on(preloaded(), Template::Bare).await;
    let (client, admin) = (db.connect().await, another(&db).await);
    run(&admin, &[&format!("ALTER DATABASE {} IS_TEMPLATE true", db.name())]).await;
    run(&client, &["CREATE EXTENSION awa_ingest"]).await;
    leave(client, &admin).await;
    let copy = format!("{}_copy", db.name());
    run(&admin, &[&format!("CREATE DATABASE {copy} TEMPLATE {}", db.name())]).await;
    // The copy, which is younger, is served.
    let served = |name: &str| {
        format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'awa_ingest maintenance'")
    };
    wait_until(&admin, &served(&copy)).await;
    let row = admin.query_one(&served(db.name()), &[]).await.expect("pg_stat_activity");
    assert!(!row.get::<_, bool>(0));
    run(&admin, &[&format!("ALTER DATABASE {} IS_TEMPLATE false", db.name())]).await;
}

/// A database that becomes a template can be copied without a wait, and has its worker again when it is none any more.
#[tokio::test]
async fn a_worker_leaves_a_database_that_became_a_template() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let (client, admin) = (db.connect().await, another(&db).await);
    let pid = worker(&client).await;
    run(&admin, &[&format!("ALTER DATABASE {} IS_TEMPLATE true", db.name())]).await;
    wait_until_gone(&admin, pid).await;
    let refused = failure(client.execute("SELECT awa_ingest.start_worker()", &[]).await);
    assert_eq!(refused.sqlstate, "55000");
    leave(client, &admin).await;
    run(&admin, &[&format!("CREATE DATABASE {0}_copy TEMPLATE {0}", db.name())]).await;
    let here = format!("SELECT FROM pg_stat_activity WHERE datname = '{}' AND backend_type LIKE 'awa_ingest%'", db.name());
    assert!(admin.query_opt(&here, &[]).await.expect(&here).is_none());
    run(&admin, &[&format!("ALTER DATABASE {} IS_TEMPLATE false", db.name())]).await;
    worker(&db.connect().await).await;
}

#[tokio::test]
async fn a_worker_leaves_a_database_that_takes_no_connections() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let (client, admin) = (db.connect().await, another(&db).await);
    let pid = worker(&client).await;
    run(&admin, &[&format!("ALTER DATABASE {} ALLOW_CONNECTIONS false", db.name())]).await;
    wait_until_gone(&admin, pid).await;
    run(&admin, &[&format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", db.name())]).await;
    worker(&db.connect().await).await;
}

#[tokio::test]
async fn the_extension_can_be_dropped_and_made_again() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    within("DROP EXTENSION", run(&client, &["DROP EXTENSION awa_ingest"])).await;
    wait_until_gone(&client, pid).await;
    run(&client, &["CREATE EXTENSION awa_ingest"]).await;
    worker_other_than(&client, pid).await;
}

/// A barrier goes to all processes of the server, and DROP DATABASE waits until all have answered.
#[tokio::test]
async fn dropping_another_database_does_not_wait_for_workers() {
    let cluster = preloaded();
    let (served, other) = (Db::on(cluster.clone(), Template::Embedded).await, Db::on(cluster, Template::Bare).await);
    let client = served.connect().await;
    let pid = worker(&client).await;
    run(&client, &[&format!("DROP DATABASE {}", other.name())]).await;
    assert_eq!(worker(&client).await, pid);
}
