//! Upkeep leaves alone what is being replicated into its database.

use awa_ingest_tests::Template;
use awa_model::queue_storage::RotateOutcome;
use awa_model::{QueueStorage, QueueStorageConfig};

use crate::support::Side;

/// A row that nothing needs, in the current slot, which becomes the oldest when the ring has gone round.
async fn something_to_prune(side: &Side) {
    side.run(
        "INSERT INTO awa.ready_tombstones (ready_slot, ready_generation, queue, priority, lane_seq, job_id)
         SELECT slot.slot, slot.generation, 'q', 2, 1, 1 FROM awa.queue_ring_slots AS slot, awa.queue_ring_state AS state
          WHERE slot.slot = state.current_slot",
    )
    .await;
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
    let pool = side.db.pool().await;
    for _ in 0..15 {
        let outcome = store.rotate(&pool).await.expect("rotate");
        assert!(matches!(outcome, RotateOutcome::Rotated { .. }), "{outcome:?}");
    }
    pool.close().await;
}

const TOMBSTONES: &str = "SELECT count(*) FROM awa.ready_tombstones";

#[tokio::test(flavor = "multi_thread")]
async fn a_subscribers_worker_prunes_nothing_until_the_subscription_is_gone() {
    let (publisher, subscriber) = (Side::new(Template::Awa).await, Side::new(Template::Awa).await);
    publisher.run("SELECT awa_ingest.stop_worker()").await;
    publisher.publish("").await;
    subscriber.subscribe(&publisher, ", copy_data = false").await;
    subscriber.catch_up(&publisher).await;
    let skipped = "SELECT count(*) > 0 FROM awa_ingest.maintenance_runs WHERE task = 'prune' AND outcome = 'skipped_subscribed'";
    subscriber.until(skipped).await;
    something_to_prune(&publisher).await;
    subscriber.catch_up(&publisher).await;
    assert_eq!(subscriber.value::<i64>(TOMBSTONES).await, 1);

    let runs = "SELECT string_agg(concat_ws(' ', ring, outcome), ', ') FROM awa_ingest.run_maintenance('prune')";
    assert_eq!(subscriber.value::<String>(runs).await, "skipped_subscribed");
    let rings = "SELECT string_agg(DISTINCT reason, ' ' ORDER BY reason) FROM awa_ingest.rings WHERE NOT prunable";
    assert_eq!(subscriber.value::<String>(rings).await, "current subscribed unused");
    // A subscription that is switched off may go on.
    let name = subscriber.subscription();
    subscriber.run(&format!("ALTER SUBSCRIPTION {name} DISABLE")).await;
    assert_eq!(subscriber.value::<String>(runs).await, "skipped_subscribed");
    // An ANALYZE changes nothing.
    let statistics = "SELECT bool_or(outcome = 'analyzed') FROM awa_ingest.run_maintenance('statistics')";
    assert!(subscriber.value::<bool>(statistics).await);
    assert_eq!(subscriber.value::<i64>(TOMBSTONES).await, 1);
    // The publisher prunes, and the subscriber's rows go.
    subscriber.run(&format!("ALTER SUBSCRIPTION {name} ENABLE")).await;
    assert!(publisher.value::<String>(runs).await.starts_with("queue pruned"));
    subscriber.until("SELECT count(*) = 0 FROM awa.ready_tombstones").await;
    subscriber.assert_goes_on(&publisher, 1).await;

    // After a failover this is a database like any other.
    something_to_prune(&publisher).await;
    subscriber.catch_up(&publisher).await;
    assert_eq!(subscriber.value::<i64>(TOMBSTONES).await, 1);
    subscriber.run(&format!("ALTER SUBSCRIPTION {name} DISABLE")).await;
    subscriber.run(&format!("ALTER SUBSCRIPTION {name} SET (slot_name = NONE)")).await;
    subscriber.run(&format!("DROP SUBSCRIPTION {name}")).await;
    subscriber.until("SELECT count(*) = 0 FROM awa.ready_tombstones").await;
}

/// A subscription to tables of the user's own keeps nothing from being done.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_to_other_tables_does_not_matter() {
    let (publisher, subscriber) = (Side::new(Template::Awa).await, Side::new(Template::Awa).await);
    publisher.run("CREATE PUBLICATION everything FOR TABLE public.orders, public.marks").await;
    subscriber.subscribe(&publisher, "").await;
    subscriber.catch_up(&publisher).await;
    something_to_prune(&subscriber).await;
    subscriber.until("SELECT count(*) = 0 FROM awa.ready_tombstones").await;
    subscriber.assert_goes_on(&publisher, 1).await;
}
