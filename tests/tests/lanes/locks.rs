//! Which locks a producer holds until its transaction ends, and in which order it takes them.

use std::collections::BTreeSet;

use awa_ingest_tests::{Db, Storage, backend_pid, failure, jobs, rows, wait_until_blocked, within};
use awa_model::{InsertOpts, InsertParams, QueueStorage, QueueStorageConfig};
use serde_json::json;
use tokio_postgres::Client;

fn job(queue: &str, priority: i16) -> InsertParams {
    jobs::job_with("step", json!({}), InsertOpts { queue: queue.into(), priority, ..Default::default() })
}

/// Three lanes, in no order.
fn batch() -> Vec<InsertParams> {
    vec![job("b", 2), job("a", 4), job("b", 1), job("a", 4)]
}

/// The advisory locks that backend `pid` holds, as the 64-bit keys they were taken with.
async fn advisory_locks(observer: &Client, pid: i32) -> BTreeSet<i64> {
    let sql = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
               WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = $1";
    observer.query(sql, &[&pid]).await.expect(sql).into_iter().map(|row| row.get(0)).collect()
}

/// The keys the protocol derives from lanes: `name` is an SQL expression over `queue`, `priority`, `enqueue_shard` and
/// the lane's `seq_name`.
async fn lane_keys(client: &Client, storage: Storage, name: &str, lanes: &[(&str, i16)]) -> BTreeSet<i64> {
    let sql = format!(
        "SELECT hashtextextended('{}' || {name}, 0) FROM {} WHERE (queue, priority) IN (SELECT * FROM unnest($1::text[], $2::smallint[]))",
        storage.schema(),
        storage.table("queue_enqueue_heads"),
    );
    let (queues, priorities): (Vec<&str>, Vec<i16>) = lanes.iter().copied().unzip();
    let keys: BTreeSet<i64> =
        client.query(&sql, &[&queues, &priorities]).await.expect(&sql).into_iter().map(|r| r.get(0)).collect();
    assert_eq!(keys.len(), lanes.len(), "every lane has a head");
    keys
}

const RESERVATION: &str = "'.' || quote_ident(seq_name)";
const CREATION: &str = "':' || queue || ':' || priority || ':' || enqueue_shard";
const LANES: [(&str, i16); 3] = [("a", 4), ("b", 1), ("b", 2)];

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_batch_holds_the_locks_of_its_lanes() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (producer, observer) = (db.connect().await, db.connect().await);
        let pid = backend_pid(&producer).await;
        jobs::enqueue_batch(&producer, &batch()).await;
        jobs::enqueue_batch(&producer, &[job("a", 1), job("other", 2)]).await;
        assert_eq!(advisory_locks(&observer, pid).await, BTreeSet::new(), "none outlives its transaction, {storage:?}");

        producer.batch_execute("BEGIN").await.unwrap();
        jobs::enqueue_batch(&producer, &batch()).await;
        let lanes = lane_keys(&observer, storage, RESERVATION, &LANES).await;
        assert_eq!(advisory_locks(&observer, pid).await, lanes, "known lanes, {storage:?}");

        producer.batch_execute("SAVEPOINT s").await.unwrap();
        jobs::enqueue(&producer, &job("other", 2)).await;
        producer.batch_execute("ROLLBACK TO s").await.unwrap();
        assert_eq!(advisory_locks(&observer, pid).await, lanes, "a savepoint gives back its own, {storage:?}");
        producer.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(advisory_locks(&observer, pid).await, BTreeSet::new(), "{storage:?}");
    }
}

/// Creating a lane takes the lock of awa's producers too, and may take more.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_batch_of_new_lanes_also_holds_their_creation() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (producer, observer) = (db.connect().await, db.connect().await);
        let pid = backend_pid(&producer).await;
        producer.batch_execute("BEGIN").await.unwrap();
        jobs::enqueue_batch(&producer, &batch()).await;
        let mut expected = lane_keys(&producer, storage, RESERVATION, &LANES).await;
        expected.extend(lane_keys(&producer, storage, CREATION, &LANES).await);
        let held = advisory_locks(&observer, pid).await;
        assert!(held.is_superset(&expected), "{storage:?}: {held:?} lacks some of {expected:?}");
    }
}

/// Deferred jobs need no lane, and a batch whose every job is skipped reserves none.
#[tokio::test(flavor = "multi_thread")]
async fn deferred_and_skipped_jobs_lock_no_lane() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (producer, observer) = (db.connect().await, db.connect().await);
        let pid = backend_pid(&producer).await;
        let mut unique = job("a", 4);
        unique.opts.unique = Some(Default::default());
        jobs::enqueue_batch(&producer, &[unique.clone()]).await;

        producer.batch_execute("BEGIN").await.unwrap();
        let mut later = job("a", 4);
        later.opts.run_at = Some(chrono::Utc::now() + chrono::TimeDelta::hours(1));
        jobs::enqueue_batch(&producer, &[later]).await;
        let skipped = jobs::try_enqueue_batch(&producer, &[unique], "skip").await.unwrap();
        assert!(skipped[0].conflicts_with.is_some());
        assert_eq!(advisory_locks(&observer, pid).await, BTreeSet::new(), "{storage:?}");
    }
}

/// Two batches that name two lanes in opposite order, while a third transaction holds one of the lanes: taking locks in
/// input order would have them wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn opposite_input_order_does_not_deadlock() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        for parked in ["a", "b"] {
            opposite_orders_behind(&db, storage, parked).await;
        }
    }
}

async fn opposite_orders_behind(db: &Db, storage: Storage, parked: &str) {
    let (holder, observer) = (db.connect().await, db.connect().await);
    jobs::enqueue_batch(&holder, &[job("a", 1), job("b", 1)]).await;
    holder.batch_execute("BEGIN").await.unwrap();
    jobs::enqueue(&holder, &job(parked, 1)).await;

    let mut waiting = Vec::new();
    for order in [["a", "b"], ["b", "a"]] {
        let client = db.connect().await;
        let pid = backend_pid(&client).await;
        let batch = order.map(|queue| job(queue, 1));
        waiting.push(tokio::spawn(async move { jobs::try_enqueue_batch(&client, &batch, "error").await }));
        wait_until_blocked(&observer, pid).await;
    }
    holder.batch_execute("COMMIT").await.unwrap();
    for batch in waiting {
        let done = within("the batch", batch).await.expect("the task");
        assert_eq!(done.expect("no deadlock").len(), 2, "{storage:?} behind {parked}");
    }
}

/// awa's own producers and the extension's wait for each other on the same locks.
#[tokio::test(flavor = "multi_thread")]
async fn awas_client_waits_for_a_parked_batch_and_comes_after_it() {
    let db = Storage::Attached.db().await;
    let (producer, observer) = (db.connect().await, db.connect().await);
    jobs::enqueue(&producer, &job("a", 1)).await;
    producer.batch_execute("BEGIN").await.unwrap();
    jobs::enqueue_batch(&producer, &[job("a", 1), job("a", 1)]).await;

    let pool = db.pool().await;
    let awas = tokio::spawn(async move {
        let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
        store.enqueue_params_copy(&pool, &[jobs::job_with("awa", json!({}), job("a", 1).opts)]).await
    });
    let blocked =
        format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE {} = ANY(pg_blocking_pids(pid))", backend_pid(&producer).await);
    awa_ingest_tests::wait_until(&observer, &blocked).await;
    producer.batch_execute("COMMIT").await.unwrap();
    within("awa's client", awas).await.unwrap().unwrap();
    let order = rows(&observer, "(SELECT lane_seq, kind FROM awa.ready_entries)", &[]).await;
    let expected = [(1, "step"), (2, "step"), (3, "step"), (4, "awa")].map(|(n, kind)| json!({"kind": kind, "lane_seq": n}));
    awa_ingest_tests::assert_same_rows("the lane", &expected, &order);
}

/// The other way round: a lane that awa's client holds makes the extension wait; with a lock timeout it gives up.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_waits_for_a_lane_that_is_held() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (producer, holder) = (db.connect().await, db.connect().await);
        jobs::enqueue_batch(&producer, &batch()).await;
        let key = *lane_keys(&producer, storage, RESERVATION, &[("b", 1)]).await.first().expect("one lane");
        holder.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({key})")).await.unwrap();

        producer.batch_execute("SET lock_timeout = '50ms'").await.unwrap();
        let refused = failure(jobs::try_enqueue_batch(&producer, &batch(), "error").await);
        assert_eq!(refused.sqlstate, "55P03", "{storage:?}");
        jobs::enqueue(&producer, &job("a", 4)).await;
        holder.batch_execute("ROLLBACK").await.unwrap();
        jobs::enqueue_batch(&producer, &batch()).await;
    }
}
