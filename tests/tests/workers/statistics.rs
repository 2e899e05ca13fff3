//! Statistics by a worker.

use awa_ingest_tests::{Db, Template, jobs, wait_until};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{change, make_gate, preloaded, preloaded_with, rotate, run, set, set_gate, wait_for_run, wait_for_statistics};

async fn analyzed(client: &Client) -> Vec<String> {
    let sql = "SELECT DISTINCT starelid::regclass::text FROM pg_statistic WHERE starelid::regclass::text LIKE 'awa.%'
                  AND starelid::regclass::text !~ '_[0-9]+$' ORDER BY 1";
    client.query(sql, &[]).await.expect(sql).iter().map(|row| row.get(0)).collect()
}

async fn passes(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM awa_ingest.maintenance_runs WHERE relation = 'awa.queue_claim_heads'";
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// An awa database with a job, and no worker yet.
async fn with_a_job(cluster: std::sync::Arc<awa_ingest_tests::Cluster>) -> (Db, Client) {
    let db = Db::on(cluster, Template::AwaOnly).await;
    let client = db.connect().await;
    // The extension's worker finds the job when it comes.
    client.batch_execute("BEGIN; CREATE EXTENSION awa_ingest").await.expect("CREATE EXTENSION");
    jobs::try_enqueue_batch(&client, &[jobs::job("some", json!({}))], "error").await.expect("a job");
    client.batch_execute("COMMIT").await.expect("COMMIT");
    (db, client)
}

/// The statistics process stands in the gate.
const HANGS: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                                       AND backend_type = 'awa_ingest statistics' AND wait_event = 'PgSleep')";

#[tokio::test]
async fn the_first_pass_comes_at_once() {
    let (_db, client) = with_a_job(preloaded()).await;
    wait_for_statistics(&client).await;
    let with_rows = ["awa.queue_claim_heads", "awa.queue_enqueue_heads", "awa.ready_entries", "awa.ready_segments"];
    assert_eq!(analyzed(&client).await, with_rows);
    assert_eq!(passes(&client).await, 1);
    let runs = "SELECT count(DISTINCT relation) FILTER (WHERE outcome = 'analyzed'), count(*) FILTER (WHERE rows = 1 AND relation = 'awa.ready_entries')
                  FROM awa_ingest.maintenance_runs WHERE task = 'statistics'";
    let row = client.query_one(runs, &[]).await.expect(runs);
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (4, 1));
    wait_for_run(&client, "relation = 'awa.leases' AND outcome = 'noop' AND reason = 'empty'").await;
}

#[tokio::test]
async fn the_next_pass_comes_after_the_interval_if_something_changed() {
    let cluster = preloaded_with(&[]);
    let (_db, client) = with_a_job(cluster).await;
    wait_for_statistics(&client).await;
    // The interval is over, and nothing has changed: no pass, but this one is over again.
    set(&client, "awa_ingest.clock_offset", Some("400")).await;
    set(&client, "awa_ingest.prune_interval", Some("20ms")).await;
    wait_for_run(&client, "task = 'prune'").await;
    // What the worker saw of the setting came with the other.
    assert_eq!(passes(&client).await, 1);
    change(&client).await;
    set(&client, "awa_ingest.clock_offset", Some("800")).await;
    wait_for_run(&client, "relation = 'awa.ready_entries' AND rows = 2").await;
    wait_for_statistics(&client).await;
    assert_eq!(passes(&client).await, 2);
}

#[tokio::test]
async fn a_locked_table_is_skipped_and_comes_next_time() {
    let cluster = preloaded_with(&[]);
    let db = Db::on(cluster.clone(), Template::AwaOnly).await;
    let (client, holder) = (db.connect().await, db.connect().await);
    run(&client, &["SELECT awa.insert_job_compat('some', 'q')"]).await;
    holder.batch_execute("BEGIN; LOCK TABLE ONLY awa.ready_entries IN SHARE UPDATE EXCLUSIVE MODE").await.expect("a lock");
    run(&client, &["CREATE EXTENSION awa_ingest"]).await;
    wait_for_statistics(&client).await;
    wait_for_run(&client, "relation = 'awa.ready_entries' AND outcome = 'skipped_lock' AND error IS NULL").await;
    wait_for_run(&client, "relation = 'awa.ready_segments' AND outcome = 'analyzed'").await;
    holder.batch_execute("COMMIT").await.expect("COMMIT");
    // Nothing was written, but a table was left out.
    set(&client, "awa_ingest.clock_offset", Some("1000")).await;
    wait_for_run(&client, "relation = 'awa.ready_entries' AND outcome = 'analyzed'").await;
    let log = cluster.log();
    assert!(!log.contains("ERROR") && !log.contains("WARNING"), "{log}");
}

#[tokio::test]
async fn a_slow_analyze_does_not_delay_a_prune_and_gives_way_to_others() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "20ms")]);
    let (db, client) = with_a_job(cluster).await;
    wait_for_statistics(&client).await;
    make_gate(&client).await;
    change(&client).await;
    run(&client, &["CREATE INDEX slow_index ON awa.queue_enqueue_heads (public.slow(queue))"]).await;
    set_gate(&client, false).await;
    set(&client, "awa_ingest.clock_offset", Some("1000")).await;
    wait_until(&client, HANGS).await;
    // The ring turns, and the prune finds a slot with a job that nobody has claimed.
    rotate(&db).await;
    wait_for_run(&client, "ring = 'queue' AND slot = 0 AND outcome = 'skipped_active' AND reason = 'pending'").await;
    // Between two sleeps it is not seen to sleep.
    wait_until(&client, HANGS).await;
    // DROP INDEX waits for the ANALYZE, which is cancelled.
    run(&client, &["DROP INDEX awa.slow_index"]).await;
    wait_for_run(&client, "relation = 'awa.queue_enqueue_heads' AND outcome = 'failed' AND sqlstate = '57014'").await;
    wait_until(&client, "SELECT count(*) = 2 FROM awa_ingest.maintenance_runs WHERE relation = 'awa.queue_claim_heads'").await;
    set_gate(&client, true).await;
}

/// Code that catches cancellations is ended after a while, not at once, and the record says so.
#[tokio::test]
async fn an_analyze_that_is_not_to_be_cancelled_is_ended() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "20ms")]);
    let (_db, client) = with_a_job(cluster).await;
    wait_for_statistics(&client).await;
    make_gate(&client).await;
    change(&client).await;
    run(&client, &["CREATE INDEX slow_index ON awa.queue_enqueue_heads (public.stubborn(queue))"]).await;
    set_gate(&client, false).await;
    set(&client, "awa_ingest.clock_offset", Some("1000")).await;
    wait_until(&client, HANGS).await;
    run(&client, &["DROP INDEX awa.slow_index"]).await;
    wait_for_run(&client, "task = 'statistics' AND outcome = 'failed' AND sqlstate = '57P01' AND error LIKE '%in the way%'").await;
    set_gate(&client, true).await;
    // The pass was not complete: the next one comes although nothing was written.
    set(&client, "awa_ingest.clock_offset", Some("2000")).await;
    wait_until(&client, "SELECT count(*) = 2 FROM awa_ingest.maintenance_runs WHERE relation = 'awa.queue_claim_heads'").await;
}

#[tokio::test]
async fn an_analyze_that_takes_too_long_is_cancelled() {
    let cluster = preloaded_with(&[("awa_ingest.statistics_timeout", "100ms")]);
    let (_db, client) = with_a_job(cluster).await;
    wait_for_statistics(&client).await;
    make_gate(&client).await;
    change(&client).await;
    run(&client, &["CREATE INDEX ON awa.queue_enqueue_heads (public.slow(queue))"]).await;
    set_gate(&client, false).await;
    set(&client, "awa_ingest.clock_offset", Some("1000")).await;
    wait_for_run(&client, "relation = 'awa.queue_enqueue_heads' AND sqlstate = '57014' AND error LIKE '%statement timeout%'").await;
    wait_until(&client, "SELECT count(*) = 2 FROM awa_ingest.maintenance_runs WHERE relation = 'awa.queue_claim_heads'").await;
    let last = "SELECT last_error LIKE '%statement timeout%' AND last_error_at IS NOT NULL FROM awa_ingest.workers WHERE role = 'maintenance' AND database = current_database()";
    assert_eq!(client.query_one(last, &[]).await.expect(last).get::<_, Option<bool>>(0), Some(true));
    set_gate(&client, true).await;
}

#[tokio::test]
async fn nothing_is_analyzed_while_the_interval_is_0() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "20ms")]);
    let before = Db::on(cluster.clone(), Template::Bare).await;
    set(&before.connect().await, "awa_ingest.statistics_interval", Some("0")).await;
    let (_db, client) = with_a_job(cluster).await;
    wait_for_run(&client, "task = 'prune'").await;
    assert_eq!(passes(&client).await, 0);
    set(&client, "awa_ingest.statistics_interval", Some("5min")).await;
    wait_for_statistics(&client).await;
}
