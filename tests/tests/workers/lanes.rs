//! A worker sets lanes going that awa's workers never leave.

use awa_ingest_tests::{Db, Template, Worker, jobs, wait_until};
use awa_model::{InsertOpts, InsertParams};
use serde_json::json;

use crate::support::{preloaded_with, run, set, wait_for_run};

fn job() -> InsertParams {
    jobs::job_with("some", json!({}), InsertOpts { queue: "q".into(), ..Default::default() })
}

#[tokio::test]
async fn a_lane_that_stands_goes_on() {
    let db = Db::on(preloaded_with(&[]), Template::Awa).await;
    let client = db.connect().await;
    jobs::enqueue_batch(&client, &[job()]).await;
    run(&client, &["SELECT FROM awa.claim_ready_runtime('q', 10, 0, 0)", "SELECT FROM awa.claim_ready_runtime('q', 10, 0, 0)"])
        .await;
    client.batch_execute("BEGIN; SELECT awa.enqueue('some', queue => 'q'); ROLLBACK").await.expect("a gap");
    jobs::enqueue_batch(&client, &[job()]).await;
    // A worker that claims and dies.
    run(&client, &["SELECT FROM awa.claim_ready_runtime('q', 10, 0, 0)"]).await;
    let waiting = jobs::enqueue_batch(&client, &[job()]).await[0].job_id.expect("an id");

    set(&client, "awa_ingest.lanes_interval", Some("20ms")).await;
    wait_for_run(&client, "task = 'lanes' AND outcome = 'healed' AND rows = 2").await;
    let awa = Worker::builder().queue("q").kind("some").start(&db).await;
    awa.wait_for(1).await;
    assert_eq!(awa.stop().await.iter().map(|job| job.id).collect::<Vec<_>>(), [waiting]);
    // What is found to be in order is recorded once.
    wait_for_run(&client, "task = 'lanes' AND outcome = 'noop'").await;
}

/// What producers would be refused for is recorded before they come, once, and said in the log once.
#[tokio::test]
async fn a_sequence_that_is_behind_is_recorded() {
    let db = Db::on(preloaded_with(&[("awa_ingest.lanes_interval", "20ms")]), Template::Awa).await;
    let client = db.connect().await;
    jobs::enqueue_batch(&client, &[job(), job()]).await;
    wait_for_run(&client, "task = 'lanes' AND ring = 'sequences' AND outcome = 'noop'").await;
    run(&client, &["SELECT setval('awa.job_id_seq', 1)"]).await;
    let damaged =
        "task = 'lanes' AND ring = 'sequences' AND outcome = 'damaged' AND sqlstate = '55000' AND error LIKE '%job_id_seq%'";
    wait_for_run(&client, damaged).await;
    run(&client, &["SELECT awa_ingest.repair_lane_sequence('awa', 'job_id_seq')"]).await;
    let again =
        "SELECT count(*) = 2 FROM awa_ingest.maintenance_runs WHERE task = 'lanes' AND ring = 'sequences' AND outcome = 'noop'";
    wait_until(&client, again).await;
    let recorded = format!("SELECT count(*) FROM awa_ingest.maintenance_runs WHERE {damaged}");
    assert_eq!(client.query_one(&recorded, &[]).await.expect("runs").get::<_, i64>(0), 1);
}
