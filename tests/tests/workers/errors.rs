//! A task that fails every time does not keep others from their work.

use awa_ingest_tests::{Db, Template};

use crate::support::{change, preloaded_with, rotate, run, set, wait_for_run, wait_for_statistics, worker};

#[tokio::test]
async fn prune_fails_and_statistics_go_on() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "20ms")]);
    let db = Db::on(cluster, Template::Awa).await;
    let client = db.connect().await;
    wait_for_statistics(&client).await;
    run(&client, &["ALTER TABLE awa.queue_ring_slots RENAME TO elsewhere"]).await;
    wait_for_run(&client, "ring = 'queue' AND outcome = 'failed' AND sqlstate = '55000' AND error LIKE '%queue_ring_slots%'").await;
    // The other rings of the same pass, too: their record says noop since before.
    change(&client).await;
    set(&client, "awa_ingest.clock_offset", Some("1000")).await;
    wait_for_run(&client, "relation = 'awa.ready_entries' AND outcome = 'analyzed' AND rows = 1").await;
    let last = "SELECT last_error FROM awa_ingest.workers WHERE role = 'maintenance' AND database = current_database()";
    let error: Option<String> = client.query_one(last, &[]).await.expect(last).get(0);
    assert!(error.expect("an error").contains("queue_ring_slots"));
    // It is tried again, in growing intervals.
    run(&client, &["ALTER TABLE awa.elsewhere RENAME TO queue_ring_slots"]).await;
    rotate(&db).await;
    set(&client, "awa_ingest.clock_offset", Some("2000")).await;
    wait_for_run(&client, "ring = 'queue' AND outcome = 'skipped_active'").await;
}

#[tokio::test]
async fn statistics_fail_and_prune_goes_on() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "20ms")]);
    let db = Db::on(cluster, Template::Awa).await;
    let client = db.connect().await;
    wait_for_statistics(&client).await;
    change(&client).await;
    run(
        &client,
        &[
            "CREATE SEQUENCE public.failing",
            "CREATE FUNCTION public.fails(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
                IF (SELECT is_called FROM public.failing) THEN RAISE EXCEPTION 'no such thing' USING ERRCODE = '22012'; END IF;
                RETURN $1; END $$",
            "CREATE INDEX ON awa.queue_claim_heads (public.fails(queue))",
            "SELECT nextval('public.failing')",
        ],
    )
    .await;
    set(&client, "awa_ingest.clock_offset", Some("1000")).await;
    wait_for_run(
        &client,
        "relation = 'awa.queue_claim_heads' AND outcome = 'failed' AND sqlstate = '22012' AND error = 'no such thing'",
    )
    .await;
    wait_for_run(&client, "relation = 'awa.queue_enqueue_heads' AND outcome = 'analyzed' AND rows = 1").await;
    rotate(&db).await;
    wait_for_run(&client, "ring = 'queue' AND outcome = 'skipped_active'").await;
}

#[tokio::test]
async fn a_storage_that_is_not_known_is_recorded_and_the_worker_stays() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "20ms")]);
    let db = Db::on(cluster, Template::Awa).await;
    let client = db.connect().await;
    wait_for_statistics(&client).await;
    let pid = worker(&client).await;
    run(&client, &["UPDATE awa.schema_version SET version = 43 WHERE version = 40"]).await;
    wait_for_run(&client, "task = 'prune' AND ring IS NULL AND outcome = 'failed' AND sqlstate = '55000' AND error LIKE '%43%'")
        .await;
    run(&client, &["UPDATE awa.schema_version SET version = 40 WHERE version = 43"]).await;
    change(&client).await;
    rotate(&db).await;
    set(&client, "awa_ingest.clock_offset", Some("2000")).await;
    wait_for_run(&client, "ring = 'queue' AND outcome = 'skipped_active'").await;
    assert_eq!(worker(&client).await, pid);
}
