//! Unmodified awa and the extension, all ways at once on one database: no deadlock reaches a statement that skips, no job is lost or
//! worked twice, and lanes stay whole while the ring turns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use awa_ingest_tests::{Cluster, Db, Storage, Worker, assert_lanes_intact, rows};
use awa_model::{QueueStorage, QueueStorageConfig, RotateOutcome};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::calls::Way;
use crate::old::attached_with_original;
use crate::tally::{KIND, Producer, QUEUES, Stage, Tally};

/// How long producers produce: a minute where `AWA_INGEST_LONG` is set; else so long that CI sees every sort of crossing.
fn duration() -> Duration {
    Duration::from_secs(if std::env::var_os("AWA_INGEST_LONG").is_some() { 60 } else { 20 })
}

/// A worker that has fallen behind is waited for as long as it gets anywhere.
const STALLED: Duration = Duration::from_secs(30);

/// Positions of a lane are taken in the order of the commits that show them.
const COMMIT_ORDER: &str = "(SELECT * FROM (SELECT queue, priority, enqueue_shard, lane_seq, pg_xact_commit_timestamp(xmin) AS at,
        lag(pg_xact_commit_timestamp(xmin)) OVER (PARTITION BY queue, priority, enqueue_shard ORDER BY lane_seq) AS before
        FROM awa.ready_entries) AS ready WHERE at < before OR at IS NULL)";

/// A server that finds deadlocks soon, so that there are many, and knows when transactions were committed.
async fn database() -> Db {
    let db = attached_with_original(Some(Cluster::start(&[("track_commit_timestamp", "on"), ("deadlock_timeout", "50ms")]))).await;
    let client = db.connect().await;
    client.batch_execute("CREATE TABLE orders (n bigint)").await.unwrap();
    for (queue, shards) in QUEUES {
        Storage::Attached.shard(&client, queue, shards).await;
        // awa's producers race where they create lanes: they are all there from the beginning.
        let lanes = "SELECT awa_ingest.provision_lane($1, priority::smallint, shard::smallint)
            FROM generate_series(1, 2) AS priority, generate_series(0, $2 - 1) AS shard";
        client.query(lanes, &[&queue, &i32::from(shards)]).await.expect(lanes);
    }
    db
}

/// Has all producers produce until `end`, while `meanwhile` runs.
async fn produce(stage: &Arc<Stage>, db: &Arc<Db>, seed: u64, end: Instant, meanwhile: impl Future<Output = ()>) {
    let mut producers = JoinSet::new();
    for (at, producer) in (0..).zip(Producer::all()) {
        producers.spawn(stage.clone().produce(db.clone(), producer, seed + at, end));
    }
    meanwhile.await;
    while let Some(ended) = producers.join_next().await {
        ended.unwrap_or_else(|error| panic!("{error}\n{}", deadlocks(db)));
    }
}

/// What the server says about the last deadlock.
fn deadlocks(db: &Db) -> String {
    let log = db.cluster().log();
    log.rfind("deadlock detected").map_or_else(String::new, |at| log[at..].lines().take(20).collect::<Vec<_>>().join("\n"))
}

/// How often the ring turns before the worker comes. It has 16 slots, and none becomes free before.
const TURNS: i64 = 6;

async fn turn_the_ring(stage: &Stage, end: Instant) {
    let pause = (end - Instant::now()) / (TURNS as u32 + 1);
    for _ in 0..TURNS {
        tokio::time::sleep(pause).await;
        let outcome = stage.store.rotate(&stage.pool).await.expect("rotate");
        assert!(matches!(outcome, RotateOutcome::Rotated { .. }), "{outcome:?}");
    }
}

/// Looks at the lanes while they are written, worked and pruned.
async fn watch(client: &Client, end: Instant) {
    let mut looks = 0;
    while Instant::now() < end {
        assert_lanes_intact(client, "awa", "beside a worker").await;
        looks += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(looks > 3);
}

/// The jobs that wait, told apart by `args.n`; each once.
async fn waiting(client: &Client) -> BTreeSet<i64> {
    let sql = "SELECT (args->>'n')::bigint FROM awa.ready_entries UNION ALL SELECT (args->>'n')::bigint FROM awa.deferred_jobs";
    let found: Vec<i64> = client.query(sql, &[]).await.expect(sql).iter().map(|row| row.get(0)).collect();
    let once: BTreeSet<i64> = found.iter().copied().collect();
    assert_eq!(once.len(), found.len(), "no job is there twice");
    once
}

#[track_caller]
fn assert_same_jobs(expected: &BTreeSet<i64>, found: &BTreeSet<i64>, when: &str) {
    let lost: Vec<_> = expected.difference(found).collect();
    let surplus: Vec<_> = found.difference(expected).collect();
    assert!(lost.is_empty() && surplus.is_empty(), "{when}: lost {lost:?}, surplus {surplus:?}");
}

/// Waits until the worker has had `count` jobs.
async fn drain(worker: &Worker, count: usize) {
    let (mut seen, mut since) = (worker.seen().len(), Instant::now());
    while seen < count {
        assert!(since.elapsed() < STALLED, "the worker got {seen} jobs of {count} and gets no more");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = worker.seen().len();
        if now > seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_of_every_sort_at_once() {
    let db = Arc::new(database().await);
    let client = db.connect().await;
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
    let stage = Arc::new(Stage { tally: Arc::new(Tally::default()), pool: db.pool().await, store: Arc::new(store) });

    // Nothing is worked, and all is there to be looked at.
    let end = Instant::now() + duration() / 2;
    produce(&stage, &db, 0, end, turn_the_ring(&stage, end)).await;
    assert_same_jobs(&stage.tally.committed(), &waiting(&client).await, "before the worker");
    assert_lanes_intact(&client, "awa", "before the worker").await;
    assert_eq!(rows(&client, COMMIT_ORDER, &[]).await, [] as [Value; 0], "commit order is position order within a lane");

    // A worker takes part, its rings turn and are pruned.
    let mut builder = Worker::builder().kind(KIND).max_workers(16).rotate_every(Duration::from_millis(300));
    for (queue, _) in QUEUES {
        builder = builder.queue(queue);
    }
    let worker = builder.start(&db).await;
    let end = Instant::now() + duration() / 2;
    produce(&stage, &db, 1000, end, watch(&client, end)).await;
    let committed = stage.tally.committed();
    drain(&worker, committed.len()).await;
    let worked: Vec<i64> = worker.stop().await.iter().map(|job| job.args["n"].as_i64().expect("a number")).collect();
    let once: BTreeSet<i64> = worked.iter().copied().collect();
    assert_same_jobs(&committed, &once, "after the worker");
    assert_eq!(worked.len(), once.len(), "each job was worked once");
    assert_lanes_intact(&client, "awa", "after the worker").await;
    assert_it_was_a_crowd(&client, &stage.tally).await;
}

/// There were conflicts, rollbacks and deadlocks enough for all this to mean something.
async fn assert_it_was_a_crowd(client: &Client, tally: &Tally) {
    let [committed, skipped, refused, rolled_back] = tally.counts();
    let deadlocks: i64 = client
        .query_one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", &[])
        .await
        .expect("pg_stat_database")
        .get(0);
    let turned: i64 = client.query_one("SELECT generation FROM awa.queue_ring_state", &[]).await.expect("the ring").get(0);
    println!(
        "{committed} committed, {skipped} skipped, {refused} calls refused, {rolled_back} rolled back, {deadlocks} deadlocks, ring {turned}"
    );
    assert!(committed > 500 && skipped > 200 && refused > 20 && rolled_back > 20, "{:?}", tally.counts());
    assert!(deadlocks > 0 && turned > TURNS + 3, "{deadlocks} deadlocks, ring at {turned}");
    assert_eq!(Way::SKIPPING.len(), Producer::all().iter().filter(|producer| matches!(producer, Producer::Skip(_))).count());
}
