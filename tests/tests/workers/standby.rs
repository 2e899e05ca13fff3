//! A standby has no workers until it is promoted.

use awa_ingest_tests::{Cluster, Db, Template, failure, jobs, wait_until};
use tokio_postgres::NoTls;

use crate::support::{PRELOADED, wait_for_run, worker};

const REPLICATION: [(&str, &str); 3] = [("wal_level", "replica"), ("max_wal_senders", "4"), ("hot_standby", "on")];

#[tokio::test]
async fn it_does_nothing_and_begins_when_it_is_promoted() {
    let settings = [&PRELOADED[..], &REPLICATION].concat();
    let primary = Cluster::start(&settings);
    let db = Db::on(primary.clone(), Template::Embedded).await;
    worker(&db.connect().await).await;
    let standby = Cluster::standby_of(&primary, &settings);
    let (client, connection) = tokio_postgres::connect(&standby.url("postgres", db.name()), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let processes = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'awa_ingest%'";
    assert_eq!(client.query_one(processes, &[]).await.expect(processes).get::<_, i64>(0), 0);
    let refused = failure(client.execute("SELECT awa_ingest.start_worker()", &[]).await);
    assert_eq!(refused.sqlstate, "25006");
    assert_eq!(failure(client.execute("SELECT awa_ingest.stop_worker()", &[]).await).sqlstate, "25006");
    let refused = failure(client.execute("SELECT * FROM awa_ingest.run_maintenance('prune')", &[]).await);
    assert_eq!(refused.sqlstate, "25006");
    // The records are about the primary, and not here.
    for view in ["maintenance_runs", "workers"] {
        let found = client.query(&format!("SELECT * FROM awa_ingest.{view}"), &[]).await.expect(view);
        assert!(found.is_empty(), "{view}");
    }
    client.execute("SELECT pg_promote()", &[]).await.expect("pg_promote");
    worker(&client).await;
    wait_for_run(&client, "task = 'prune'").await;
    wait_until(&client, "SELECT count(*) = 1 FROM awa_ingest.workers WHERE role = 'launcher'").await;
}

/// What is only looked at can be looked at there, on both storages; what writes is refused.
#[tokio::test]
async fn everything_that_only_reads_answers() {
    let settings = [&PRELOADED[..], &REPLICATION].concat();
    let primary = Cluster::start(&settings);
    let dbs = [Db::on(primary.clone(), Template::Embedded).await, Db::on(primary.clone(), Template::Awa).await];
    for db in &dbs {
        jobs::enqueue(&db.connect().await, &jobs::job("some", serde_json::json!({}))).await;
    }
    let standby = Cluster::standby_of(&primary, &settings);
    for db in &dbs {
        let (client, connection) = tokio_postgres::connect(&standby.url("postgres", db.name()), NoTls).await.expect("a connection");
        tokio::spawn(connection);
        for what in ["workers", "maintenance_runs", "rings", "lanes", "ingest_stats", "status()", "lane_sequence_problems()"] {
            let sql = format!("SELECT * FROM awa_ingest.{what}");
            client.query(&sql, &[]).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        }
        let waiting = "SELECT sum(waiting)::bigint FROM awa_ingest.lanes";
        assert_eq!(client.query_one(waiting, &[]).await.expect(waiting).get::<_, i64>(0), 1);
        for write in ["SELECT awa.enqueue('some')", "SELECT awa_ingest.provision_lane('q', 2::smallint, 0::smallint)"] {
            assert_eq!(failure(client.execute(write, &[]).await).sqlstate, "25006", "{write}");
        }
    }
}
