//! While nothing happens, nothing is written.

use awa_ingest_tests::{Db, Template, wait_until};
use tokio_postgres::Client;

use crate::support::{preloaded_with, wait_for_run, wait_for_statistics, worker};

/// Waits until the worker has begun another pass.
async fn wait_for_pass(client: &Client, pid: i32) {
    let sql = format!("SELECT query_start::text FROM pg_stat_activity WHERE pid = {pid}");
    let seen: Option<String> = client.query_one(&sql, &[]).await.expect(&sql).get(0);
    wait_until(
        client,
        &format!("SELECT query_start::text <> '{}' FROM pg_stat_activity WHERE pid = {pid}", seen.unwrap_or_default()),
    )
    .await;
}

#[tokio::test]
async fn passes_that_find_nothing_write_no_wal() {
    let settings = [("awa_ingest.prune_interval", "20ms"), ("autovacuum", "off"), ("checkpoint_timeout", "1h")];
    for template in [Template::Awa, Template::Embedded] {
        let db = Db::on(preloaded_with(&settings), template).await;
        let client = db.connect().await;
        wait_for_statistics(&client).await;
        wait_for_run(&client, "task = 'prune'").await;
        let pid = worker(&client).await;
        for _ in 0..3 {
            wait_for_pass(&client, pid).await;
        }
        let position = "SELECT pg_current_wal_insert_lsn()::text";
        let before: String = client.query_one(position, &[]).await.expect(position).get(0);
        for _ in 0..20 {
            wait_for_pass(&client, pid).await;
        }
        let after: String = client.query_one(position, &[]).await.expect(position).get(0);
        assert_eq!(before, after, "{template:?}");
    }
}
