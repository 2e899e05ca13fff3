//! A standby has no workers until it is promoted.

use awa_ingest_tests::{Cluster, Db, Template, failure, wait_until};
use tokio_postgres::NoTls;

use crate::support::{PRELOADED, wait_for_run, worker};

#[tokio::test]
async fn it_does_nothing_and_begins_when_it_is_promoted() {
    let replication = [("wal_level", "replica"), ("max_wal_senders", "4"), ("hot_standby", "on")];
    let settings = [&PRELOADED[..], &replication].concat();
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
    let last: i64 =
        client.query_one("SELECT coalesce(max(id), 0) FROM awa_ingest.maintenance_runs", &[]).await.expect("runs").get(0);
    client.execute("SELECT pg_promote()", &[]).await.expect("pg_promote");
    worker(&client).await;
    wait_for_run(&client, &format!("id > {last}")).await;
    wait_until(&client, "SELECT count(*) = 1 FROM awa_ingest.workers WHERE role = 'launcher'").await;
}
