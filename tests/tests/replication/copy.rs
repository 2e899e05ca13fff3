//! The extension's own tables under FOR ALL TABLES: nothing in them stops the subscription, and jobs are copied as they are.

use awa_ingest_tests::{Template, assert_same_rows, jobs, rows};
use serde_json::json;

use crate::support::Side;

const TABLES: [&str; 7] = [
    "queue_meta",
    "queue_enqueue_heads",
    "queue_claim_heads",
    "queue_ring_state",
    "job_unique_claims",
    "deferred_jobs",
    "ready_entries",
];

async fn assert_equal(publisher: &Side, subscriber: &Side, when: &str) {
    for table in TABLES {
        let table = format!("awa_ingest.{table}");
        let (there, here) = (rows(&publisher.client, &table, &[]).await, rows(&subscriber.client, &table, &[]).await);
        assert_same_rows(&format!("{table}, {when}"), &there, &here);
    }
}

/// Jobs of all sorts.
async fn enqueue(side: &Side, batch: &str) {
    for queue in ["a", "odd \"q\""] {
        let opts = |run_at| awa_model::InsertOpts { queue: queue.into(), run_at, ..Default::default() };
        let unique = awa_model::InsertOpts { unique: Some(Default::default()), ..opts(None) };
        let later = chrono::Utc::now() + chrono::TimeDelta::hours(1);
        let sorts = [opts(None), opts(Some(later)), unique];
        let jobs: Vec<_> = sorts.into_iter().map(|opts| jobs::job_with("step", json!([queue, batch]), opts)).collect();
        jobs::enqueue_batch(&side.client, &jobs).await;
    }
}

/// Both sides' workers write records, under equal ids, and run_maintenance does.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_upkeep_stop_nothing() {
    let (one, two) = (Side::new(Template::Embedded).await, Side::new(Template::Embedded).await);
    one.publish("").await;
    two.publish("").await;
    let recorded = "SELECT count(*) > 1 FROM awa_ingest.maintenance_runs";
    one.until(recorded).await;
    two.until(recorded).await;
    // From 16 on, two servers can subscribe to each other.
    let mutual = two.version().await > 15;
    two.subscribe(&one, if mutual { ", origin = none" } else { "" }).await;
    two.catch_up(&one).await;
    if mutual {
        one.subscribe(&two, ", origin = none, copy_data = false").await;
        one.catch_up(&two).await;
    }
    for (order, side) in [(1, &one), (2, &two)] {
        for task in ["statistics", "prune"] {
            side.run(&format!("SELECT * FROM awa_ingest.run_maintenance('{task}')")).await;
        }
        two.assert_goes_on(&one, order).await;
    }
    if mutual {
        one.assert_goes_on(&two, 3).await;
    }
    let ids = "SELECT count(*) = count(DISTINCT id) AND count(*) > 2 FROM awa_ingest.maintenance_runs";
    assert!(one.value::<bool>(ids).await && two.value::<bool>(ids).await);
}

/// CREATE EXTENSION has made rows on both sides before the first copy; deletes and updates find their rows, with partitions
/// published as themselves or as their parents.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_storage_is_copied() {
    for options in ["", "WITH (publish_via_partition_root = true)"] {
        let (publisher, subscriber) = (Side::new(Template::Embedded).await, Side::new(Template::Embedded).await);
        publisher.run("UPDATE awa_ingest.queue_ring_state SET current_slot = 3, generation = 3").await;
        publisher.run("INSERT INTO awa_ingest.queue_meta VALUES ('sharded', 4)").await;
        enqueue(&publisher, "before").await;
        publisher.publish(options).await;
        subscriber.subscribe(&publisher, "").await;
        subscriber.catch_up(&publisher).await;
        assert_equal(&publisher, &subscriber, "copied").await;

        publisher.run("UPDATE awa_ingest.queue_ring_state SET current_slot = 4, generation = 4").await;
        enqueue(&publisher, "after").await;
        publisher
            .run(
                "DELETE FROM awa_ingest.ready_entries WHERE args->>1 = 'before' AND queue = 'a';
                 UPDATE awa_ingest.ready_segments SET first_run_at = now() WHERE queue = 'a';
                 DELETE FROM awa_ingest.job_unique_claims WHERE job_id < 5;
                 UPDATE awa_ingest.deferred_jobs SET attempt = 7",
            )
            .await;
        subscriber.catch_up(&publisher).await;
        assert_equal(&publisher, &subscriber, "replicated").await;
        let segments = "SELECT count(*) FROM awa_ingest.ready_segments WHERE first_run_at > created_at";
        assert!(subscriber.value::<i64>(segments).await > 0);
        subscriber.assert_goes_on(&publisher, 1).await;
    }
}

/// Two databases that both take jobs give equal ids and positions away. It is not supported, but the user's tables go on.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_there_are_left_out() {
    let (publisher, subscriber) = (Side::new(Template::Embedded).await, Side::new(Template::Embedded).await);
    for side in [&publisher, &subscriber] {
        side.run("INSERT INTO awa_ingest.queue_meta VALUES ('sharded', 4)").await;
        enqueue(side, side.db.name()).await;
    }
    publisher.publish("").await;
    let own = "(SELECT job_id, args FROM awa_ingest.ready_entries UNION ALL SELECT job_id, args FROM awa_ingest.deferred_jobs)";
    let before = rows(&subscriber.client, own, &[]).await;
    subscriber.subscribe(&publisher, "").await;
    subscriber.catch_up(&publisher).await;
    subscriber.assert_goes_on(&publisher, 1).await;
    // And not only in the first copy.
    subscriber.run("SELECT awa.enqueue('own', queue => 'a') FROM generate_series(1, 3)").await;
    publisher.run("SELECT awa.enqueue('other', queue => 'a') FROM generate_series(1, 4)").await;
    subscriber.catch_up(&publisher).await;
    subscriber.assert_goes_on(&publisher, 2).await;
    let now = format!("(SELECT * FROM {own} AS job WHERE args <> '{{}}')");
    assert_same_rows("own jobs", &before, &rows(&subscriber.client, &now, &[]).await);
    let kinds = "SELECT string_agg(kind, ' ' ORDER BY lane_seq) FROM awa_ingest.ready_entries WHERE args = '{}'";
    assert_eq!(subscriber.value::<String>(kinds).await, "own own own other");
    let log = subscriber.db.cluster().log();
    assert!(log.contains("that is there already; it is left out"), "{log}");
}

/// What awa's function was is a matter of each database.
#[tokio::test(flavor = "multi_thread")]
async fn attach_on_both_sides() {
    let (publisher, subscriber) = (Side::new(Template::Awa).await, Side::new(Template::Awa).await);
    publisher.publish("").await;
    subscriber.subscribe(&publisher, ", copy_data = false").await;
    let function = "SELECT insert_job_compat FROM awa_ingest.status()";
    publisher.run("SELECT awa_ingest.attach()").await;
    subscriber.catch_up(&publisher).await;
    assert_eq!(subscriber.value::<String>(function).await, "original");
    subscriber.run("SELECT awa_ingest.attach()").await;
    publisher.run("SELECT awa_ingest.detach()").await;
    publisher.run("SELECT awa_ingest.attach()").await;
    subscriber.assert_goes_on(&publisher, 1).await;
    publisher.run("SELECT awa_ingest.detach()").await;
    subscriber.assert_goes_on(&publisher, 2).await;
    assert_eq!(subscriber.value::<String>(function).await, "replaced");
    assert_eq!(subscriber.value::<i64>("SELECT count(*) FROM awa_ingest.originals").await, 1);
}

/// A restore that only silences triggers is no replication.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_the_role_of_a_replica_writes_what_it_wants() {
    let side = Side::new(Template::Embedded).await;
    side.run("SET session_replication_role = replica").await;
    side.run("INSERT INTO awa_ingest.originals VALUES ('f', 'text')").await;
    side.run("INSERT INTO awa_ingest.queue_meta VALUES ('q', 2)").await;
    let again = side.client.execute("INSERT INTO awa_ingest.queue_meta VALUES ('q', 3)", &[]).await;
    assert_eq!(awa_ingest_tests::failure(again).sqlstate, "23505");
    side.run("DELETE FROM awa_ingest.originals").await;
    assert_eq!(side.value::<i64>("SELECT count(*) FROM awa_ingest.originals").await, 0);
    let call = side.client.execute("SELECT awa_ingest.keep_own_rows()", &[]).await;
    assert_eq!(awa_ingest_tests::failure(call).sqlstate, "22023", "a trigger's function is for triggers");
}
