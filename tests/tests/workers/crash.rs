//! Ends of all kinds, and what comes back after them.

use std::time::Duration;

use awa_ingest_tests::{Cluster, DEADLINE, Db, Template, within};
use tokio_postgres::{Client, NoTls};

use crate::support::{PRELOADED, change, make_gate, preloaded_with, run, wait_for_statistics, worker, worker_other_than};

/// Kills a process. The server ends all its processes then, and starts afresh. Returns a connection to it.
async fn kill(pid: i32, db: &Db, client: Client) -> Client {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill");
    assert!(killed.success());
    within("the server's end", async { while client.simple_query("SELECT").await.is_ok() {} }).await;
    let started = std::time::Instant::now();
    loop {
        if let Ok((client, connection)) = tokio_postgres::connect(&db.url(), NoTls).await {
            tokio::spawn(connection);
            if client.simple_query("SELECT").await.is_ok() {
                return client;
            }
        }
        assert!(started.elapsed() < DEADLINE, "the server does not get up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_killed_worker_comes_back_by_the_launcher() {
    let db = Db::on(preloaded_with(&[]), Template::Embedded).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    worker_other_than(&kill(pid, &db, client).await, pid).await;
}

#[tokio::test]
async fn a_killed_launcher_comes_back_and_so_do_workers() {
    let db = Db::on(preloaded_with(&[]), Template::Embedded).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    let launcher = client.query_one("SELECT pid FROM awa_ingest.workers WHERE role = 'launcher'", &[]).await.expect("the launcher");
    worker_other_than(&kill(launcher.get(0), &db, client).await, pid).await;
}

#[tokio::test]
async fn a_launcher_that_is_told_to_end_leaves_workers_alone_and_comes_back() {
    let db = Db::on(preloaded_with(&[]), Template::Embedded).await;
    let client = db.connect().await;
    let pid = worker(&client).await;
    let launcher = "SELECT pid FROM awa_ingest.workers WHERE role = 'launcher'";
    let first: i32 = client.query_one(launcher, &[]).await.expect(launcher).get(0);
    client.execute("SELECT pg_terminate_backend($1)", &[&first]).await.expect("pg_terminate_backend");
    awa_ingest_tests::wait_until(&client, &format!("SELECT min(pid) <> {first} FROM awa_ingest.workers WHERE role = 'launcher'"))
        .await;
    assert_eq!(worker(&client).await, pid);
}

#[tokio::test]
async fn a_killed_worker_comes_back_without_a_launcher() {
    let db = Db::on(Cluster::start(&[]), Template::Embedded).await;
    let client = db.connect().await;
    run(&client, &["SELECT awa_ingest.start_worker()"]).await;
    let pid = worker(&client).await;
    worker_other_than(&kill(pid, &db, client).await, pid).await;
}

#[tokio::test]
async fn a_restarted_server_has_its_workers_again_only_with_the_launcher() {
    for (settings, launcher) in [(&PRELOADED[..], true), (&[][..], false)] {
        let cluster = Cluster::start(settings);
        let db = Db::on(cluster.clone(), Template::Embedded).await;
        let client = db.connect().await;
        if !launcher {
            run(&client, &["SELECT awa_ingest.start_worker()"]).await;
        }
        worker(&client).await;
        drop(client);
        cluster.stop_fast();
        cluster.start_again();
        let client = db.connect().await;
        if launcher {
            worker(&client).await;
        } else {
            let processes = "SELECT count(*) FROM awa_ingest.workers";
            assert_eq!(client.query_one(processes, &[]).await.expect(processes).get::<_, i64>(0), 0);
        }
    }
}

/// The time is the issue's. On a busy machine the server itself can take longer, and has three tries; a process that does not listen would
/// take for ever.
#[tokio::test]
async fn a_fast_shutdown_ends_them_within_a_second_whatever_they_are_doing() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "10ms")]);
    let db = Db::on(cluster.clone(), Template::Awa).await;
    let client = db.connect().await;
    wait_for_statistics(&client).await;
    change(&client).await;
    make_gate(&client).await;
    run(&client, &["CREATE INDEX ON awa.queue_enqueue_heads (public.stubborn(queue))", "SELECT setval('public.gate', 2)"]).await;
    drop(client);
    let mut took = Vec::new();
    while took.len() < 3 {
        // A worker that starts has statistics refreshed, and that hangs in an ANALYZE.
        cluster.stop_fast();
        cluster.start_again();
        let client = db.connect().await;
        let hangs =
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'awa_ingest statistics' AND wait_event = 'PgSleep')";
        awa_ingest_tests::wait_until(&client, hangs).await;
        drop(client);
        took.push(cluster.stop_fast());
        if took.iter().any(|took| *took < Duration::from_secs(1)) {
            return;
        }
        cluster.start_again();
    }
    panic!("{took:?}");
}
