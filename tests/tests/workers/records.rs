//! What workers record is in nobody's way, and nobody is in its.

use awa_ingest_tests::{Db, Template, wait_until, within};

use crate::support::{preloaded_with, rotate, run, wait_for_run, wait_for_statistics, worker};

const COMPLAINT: &str = "cannot write to awa_ingest.maintenance_records";

#[tokio::test]
async fn a_record_that_is_locked_holds_up_neither_awa_nor_the_worker() {
    let cluster = preloaded_with(&[("awa_ingest.prune_interval", "20ms")]);
    let db = Db::on(cluster.clone(), Template::Awa).await;
    let (client, holder) = (db.connect().await, db.connect().await);
    wait_for_statistics(&client).await;
    wait_for_run(&client, "ring = 'queue' AND outcome = 'noop'").await;
    let pid = worker(&client).await;
    for lock in [
        "SELECT FROM awa_ingest.maintenance_records FOR UPDATE",
        "LOCK TABLE awa_ingest.maintenance_records IN ACCESS EXCLUSIVE MODE",
    ] {
        holder.batch_execute(&format!("BEGIN; {lock}")).await.expect(lock);
        // Something to prune in the oldest slot, which nothing else needs.
        run(&client, &["INSERT INTO awa.ready_tombstones (ready_slot, ready_generation, queue, priority, lane_seq, job_id)
                        SELECT slot.slot, slot.generation, 'q', 2, 1, 1 FROM awa.queue_ring_slots AS slot, awa.queue_ring_state AS state
                         WHERE slot.slot = state.current_slot"]).await;
        // It becomes the oldest slot when the ring has gone round.
        for _ in 0..15 {
            rotate(&db).await;
        }
        within("the prune", wait_until(&client, "SELECT count(*) = 0 FROM awa.ready_tombstones")).await;
        within("a word in the log", async {
            while lock.starts_with("LOCK") && !cluster.log().contains(COMPLAINT) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        holder.batch_execute("ROLLBACK").await.expect("ROLLBACK");
    }
    assert_eq!(worker(&client).await, pid);
    assert_eq!(cluster.log().matches(COMPLAINT).count(), 1, "{}", cluster.log());
}
