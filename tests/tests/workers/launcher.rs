//! The launcher: a worker in every database that has the extension, and wants one.

use awa_ingest_tests::{Cluster, Db, Template, failure, wait_until, within};

use crate::support::{has_worker, preloaded, preloaded_with, run, set, wait_for_run, wait_until_gone, worker, worker_other_than};

#[tokio::test]
async fn an_extension_created_while_the_server_runs_gets_its_worker() {
    let db = Db::on(preloaded(), Template::Bare).await;
    let client = db.connect().await;
    run(&client, &["CREATE EXTENSION awa_ingest"]).await;
    let pid = worker(&client).await;
    let row = client
        .query_one(
            "SELECT backend_type, usename, worker.started_at = activity.backend_start, worker.last_error IS NULL
               FROM pg_stat_activity AS activity JOIN awa_ingest.workers AS worker USING (pid) WHERE pid = $1",
            &[&pid],
        )
        .await
        .expect("the worker's row");
    assert_eq!((row.get(0), row.get(1)), ("awa_ingest maintenance", "postgres"));
    assert!(row.get(2) && row.get(3));
    let launchers = "SELECT count(*) FROM awa_ingest.workers WHERE role = 'launcher' AND database IS NULL";
    assert_eq!(client.query_one(launchers, &[]).await.expect(launchers).get::<_, i64>(0), 1);
}

#[tokio::test]
async fn a_rolled_back_extension_gets_none() {
    let cluster = preloaded();
    let db = Db::on(cluster.clone(), Template::Bare).await;
    let client = db.connect().await;
    client.batch_execute("BEGIN; CREATE EXTENSION awa_ingest; ROLLBACK").await.expect("a rolled back extension");
    // The launcher serves databases in turn: when it has come to another one, it has been here.
    let other = Db::on(cluster, Template::Bare).await.connect().await;
    run(&other, &["CREATE EXTENSION awa_ingest"]).await;
    worker(&other).await;
    let here = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type LIKE 'awa_ingest%'";
    assert_eq!(client.query_one(here, &[]).await.expect(here).get::<_, i64>(0), 0);
}

#[tokio::test]
async fn two_databases_have_one_worker_each() {
    let cluster = preloaded();
    let (one, two) = (Db::on(cluster.clone(), Template::Embedded).await, Db::on(cluster, Template::Awa).await);
    let (one, two) = (one.connect().await, two.connect().await);
    let (first, second) = (worker(&one).await, worker(&two).await);
    assert_ne!(first, second);
    // On the embedded storage prune is on, and has nothing to do; on awa's it is off.
    wait_for_run(&one, "task = 'prune' AND outcome = 'noop' AND reason = 'embedded_storage'").await;
    wait_for_run(&two, "task = 'statistics' AND relation = 'awa.queue_claim_heads'").await;
    let prunes = "SELECT count(*) FROM awa_ingest.maintenance_runs WHERE task = 'prune'";
    assert_eq!(two.query_one(prunes, &[]).await.expect(prunes).get::<_, i64>(0), 0);
}

#[tokio::test]
async fn the_list_of_databases_narrows_and_a_reload_tells() {
    let cluster = preloaded_with(&[]);
    let (one, two) = (Db::on(cluster.clone(), Template::Embedded).await, Db::on(cluster, Template::Embedded).await);
    let (first, second) = (one.connect().await, two.connect().await);
    let (kept, gone) = (worker(&first).await, worker(&second).await);
    set(&first, "awa_ingest.databases", Some(&format!("nowhere, \"{}\"", one.name()))).await;
    wait_until_gone(&first, gone).await;
    assert_eq!(worker(&first).await, kept);
    // A database that is not on the list is not even looked at.
    assert_eq!(failure(second.execute("SELECT awa_ingest.start_worker()", &[]).await).sqlstate, "55000");
    set(&first, "awa_ingest.databases", None).await;
    worker_other_than(&second, gone).await;
    assert_eq!(worker(&first).await, kept);
}

#[tokio::test]
async fn a_reload_reaches_the_worker() {
    let cluster = preloaded_with(&[]);
    let db = Db::on(cluster, Template::Awa).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    set(&client, "awa_ingest.prune_interval", Some("20ms")).await;
    for ring in ["queue", "lease", "claim", "rollup"] {
        wait_for_run(&client, &format!("task = 'prune' AND ring = '{ring}' AND outcome = 'noop'")).await;
    }
    assert_eq!(worker(&client).await, pid);
}

#[tokio::test]
async fn a_database_may_have_settings_of_its_own() {
    let db = Db::on(preloaded(), Template::Awa).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    run(&client, &[&format!("ALTER DATABASE {} SET awa_ingest.prune_interval = 50", db.name())]).await;
    client.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("pg_terminate_backend");
    worker_other_than(&client, pid).await;
    wait_for_run(&client, "task = 'prune'").await;
}

#[tokio::test]
async fn a_stopped_worker_stays_away_until_it_is_started() {
    let cluster = preloaded_with(&[]);
    let db = Db::on(cluster.clone(), Template::Embedded).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    let call = async |sql: &str| client.query_one(sql, &[]).await.expect("start or stop").get::<_, Option<bool>>(0);
    assert_eq!(call("SELECT awa_ingest.stop_worker()").await, Some(true));
    assert!(!has_worker(&client).await);
    assert_eq!(call("SELECT awa_ingest.stop_worker()").await, Some(false));
    // The launcher goes on with others, and past this one.
    let other = Db::on(cluster.clone(), Template::Embedded).await;
    worker(&other.connect().await).await;
    assert!(!has_worker(&client).await);
    assert_eq!(call("SELECT awa_ingest.start_worker() IS NULL").await, Some(true));
    let pid = worker_other_than(&client, pid).await;
    assert_eq!(call(&format!("SELECT awa_ingest.start_worker() = {pid}")).await, Some(true));
    // And until the server restarts.
    assert_eq!(call("SELECT awa_ingest.stop_worker()").await, Some(true));
    cluster.stop_fast();
    cluster.start_again();
    worker(&db.connect().await).await;
}

#[tokio::test]
async fn a_start_that_is_rolled_back_does_not_happen() {
    let cluster = preloaded();
    let db = Db::on(cluster.clone(), Template::Embedded).await;
    let client = db.connect().await;
    worker(&client).await;
    run(&client, &["SELECT awa_ingest.stop_worker()"]).await;
    client.batch_execute("BEGIN; SELECT awa_ingest.start_worker(); ROLLBACK").await.expect("a rolled back start");
    let other = Db::on(cluster, Template::Bare).await.connect().await;
    run(&other, &["CREATE EXTENSION awa_ingest"]).await;
    worker(&other).await;
    assert!(!has_worker(&client).await);
}

#[tokio::test]
async fn an_updated_extension_gets_a_new_worker() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    run(&client, &["UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'awa_ingest'"]).await;
    worker_other_than(&client, pid).await;
}

#[tokio::test]
async fn start_and_stop_are_for_those_who_may() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let role = db.role("nobody").await;
    run(&db.connect().await, &[&format!("GRANT USAGE ON SCHEMA awa_ingest TO {role}")]).await;
    let client = db.connect_as(&role).await;
    let calls =
        ["start_worker()", "stop_worker()", "announce_worker()", "run_maintenance('prune')", "analyze_relation('pg_class')"];
    for call in calls {
        assert_eq!(failure(client.execute(&format!("SELECT awa_ingest.{call}"), &[]).await).sqlstate, "42501", "{call}");
    }
    for view in ["workers", "rings", "maintenance_runs"] {
        assert_eq!(failure(client.execute(&format!("SELECT FROM awa_ingest.{view}"), &[]).await).sqlstate, "42501", "{view}");
    }
}

#[tokio::test]
async fn without_a_free_slot_the_launcher_names_every_database_once_and_goes_on() {
    let cluster = Cluster::start(&[
        ("shared_preload_libraries", "awa_ingest"),
        ("max_worker_processes", "2"),
        ("max_logical_replication_workers", "0"),
    ]);
    let mut dbs = Vec::new();
    for _ in 0..3 {
        let db = Db::on(cluster.clone(), Template::Bare).await;
        let client = db.connect().await;
        run(&client, &["CREATE EXTENSION awa_ingest"]).await;
        dbs.push((db, client));
    }
    let observer = &dbs[0].1;
    // The launcher has one slot, a worker of whichever database the other.
    wait_until(observer, "SELECT count(*) = 2 FROM awa_ingest.workers").await;
    let complaint = "no free slot for the maintenance workers of databases";
    let named = |db: &Db| {
        let (log, name) = (cluster.log(), format!("\"{}\"", db.name()));
        log.lines().filter(|line| line.contains(complaint) && line.contains(&name)).count()
    };
    let (mut served, mut unserved) = (Vec::new(), Vec::new());
    for side in &dbs {
        if has_worker(&side.1).await { served.push(side) } else { unserved.push(side) }
    }
    within("the complaints", async {
        while unserved.iter().any(|(db, _)| named(db) == 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A start that cannot be is refused, and is no start.
    let refused = failure(unserved[0].1.execute("SELECT awa_ingest.start_worker()", &[]).await);
    assert_eq!(refused.sqlstate, "53400");
    assert!(refused.hint.contains("max_worker_processes"), "{refused:?}");
    assert!(unserved.iter().all(|(db, _)| named(db) == 1), "{}", cluster.log());
    run(&served[0].1, &["SELECT awa_ingest.stop_worker()"]).await;
    // Another one's turn.
    wait_until(observer, "SELECT count(*) = 2 FROM awa_ingest.workers").await;
}

/// A worker that is getting up finds that it was stopped meanwhile, or is stopped by its process.
#[tokio::test]
async fn a_stop_reaches_a_worker_that_is_getting_up() {
    let cluster = preloaded();
    let db = Db::on(cluster.clone(), Template::Embedded).await;
    let client = db.connect().await;
    worker(&client).await;
    let other = Db::on(cluster, Template::Embedded).await.connect().await;
    for _ in 0..5 {
        run(&client, &["SELECT awa_ingest.stop_worker()", "SELECT awa_ingest.start_worker()", "SELECT awa_ingest.stop_worker()"])
            .await;
        // When the launcher has served the other one anew, it has seen this one's state.
        let pid = worker(&other).await;
        run(&other, &["SELECT awa_ingest.stop_worker()", "SELECT awa_ingest.start_worker()"]).await;
        worker_other_than(&other, pid).await;
        assert!(!has_worker(&client).await);
    }
}

#[tokio::test]
async fn a_list_that_is_none_is_refused() {
    let db = Db::on(preloaded(), Template::Embedded).await;
    let client = db.connect().await;
    let refused = failure(client.execute("ALTER SYSTEM SET awa_ingest.databases = 'one, \"two'", &[]).await);
    assert_eq!(refused.sqlstate, "22023");
}

/// A server whose slots are few looks into its databases one after the other.
#[tokio::test]
async fn many_databases_without_the_extension_take_no_slots() {
    let cluster = Cluster::start(&[
        ("shared_preload_libraries", "awa_ingest"),
        ("max_worker_processes", "3"),
        ("max_logical_replication_workers", "0"),
    ]);
    let mut last = None;
    for _ in 0..8 {
        last = Some(Db::on(cluster.clone(), Template::Bare).await);
    }
    let client = last.expect("the last one").connect().await;
    run(&client, &["CREATE EXTENSION awa_ingest"]).await;
    worker(&client).await;
    assert!(!cluster.log().contains("no free slot"), "{}", cluster.log());
}
