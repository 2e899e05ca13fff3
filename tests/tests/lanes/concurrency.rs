//! Many producers at once: positions are unique, segments cover exactly the rows, and lanes fill in commit order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use awa_ingest_tests::{Cluster, Db, Storage, Template, jobs, rows, within};
use awa_model::{InsertOpts, InsertParams};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_postgres::Client;

const PRODUCERS: u64 = 16;
const TRANSACTIONS: usize = 25;

/// Queues with the number of their shards: 28 lanes with the four priorities.
const QUEUES: [(&str, i16); 3] = [("alpha", 1), ("beta", 2), ("gamma", 4)];

/// Commit timestamps prove the order of commits; they are off by default.
fn cluster() -> Arc<Cluster> {
    Cluster::start(&[("track_commit_timestamp", "on")])
}

fn random_job(rng: &mut StdRng) -> InsertParams {
    let opts = InsertOpts {
        queue: QUEUES[rng.random_range(0..QUEUES.len())].0.to_owned(),
        priority: rng.random_range(1..=4),
        ordering_key: rng.random_bool(0.7).then(|| vec![rng.random()]),
        ..Default::default()
    };
    jobs::job_with("mixed", json!({}), opts)
}

/// A few jobs for each of several lanes, shuffled, so that lanes come in any order.
fn random_batch(rng: &mut StdRng) -> Vec<InsertParams> {
    let mut batch: Vec<_> = (0..rng.random_range(1..8)).map(|_| random_job(rng)).collect();
    batch.extend(batch.clone());
    batch.shuffle(rng);
    batch
}

/// One producer: transactions that end either way, some with savepoints that do, some slow to commit. Returns the ids
/// that were committed.
async fn produce(client: Client, seed: u64) -> BTreeSet<i64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut committed = BTreeSet::new();
    for _ in 0..TRANSACTIONS {
        client.batch_execute("BEGIN").await.unwrap();
        if rng.random_bool(0.3) {
            client.batch_execute("SAVEPOINT s").await.unwrap();
            enqueue(&client, &random_batch(&mut rng)).await;
            client.batch_execute("ROLLBACK TO s").await.unwrap();
        }
        if rng.random_bool(0.3) {
            client.batch_execute("SAVEPOINT kept").await.unwrap();
        }
        let batch = random_batch(&mut rng);
        let mut ids = enqueue(&client, &batch).await;
        if rng.random_bool(0.3) {
            // The same lanes again: their locks are held already, so any order will do.
            ids.extend(enqueue(&client, &batch.into_iter().filter(has_fixed_lane).collect::<Vec<_>>()).await);
        }
        if rng.random_bool(0.5) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..8))).await;
        }
        if rng.random_bool(0.25) {
            client.batch_execute("ROLLBACK").await.unwrap();
        } else {
            client.batch_execute("COMMIT").await.unwrap();
            committed.extend(ids);
        }
    }
    committed
}

/// Whether a job goes to the same lane on every call: those without an ordering key take turns over the shards.
fn has_fixed_lane(job: &InsertParams) -> bool {
    job.opts.ordering_key.is_some() || job.opts.queue == "alpha"
}

async fn enqueue(client: &Client, batch: &[InsertParams]) -> Vec<i64> {
    jobs::enqueue_batch(client, batch).await.into_iter().map(|e| e.job_id.expect("no unique jobs here")).collect()
}

/// Turns the ring all the while. Returns when told to stop.
async fn turn_the_ring(client: Client, storage: Storage, stop: Arc<tokio::sync::Notify>) {
    let sql = format!(
        "UPDATE {} SET current_slot = (current_slot + 1) % slot_count, generation = generation + 1",
        storage.table("queue_ring_state")
    );
    while tokio::time::timeout(Duration::from_millis(40), stop.notified()).await.is_err() {
        client.batch_execute(&sql).await.expect(&sql);
    }
}

/// Runs all producers and returns the ids they committed.
async fn run_producers(db: &Db, storage: Storage) -> BTreeSet<i64> {
    let stop = Arc::new(tokio::sync::Notify::new());
    let turning = tokio::spawn(turn_the_ring(db.connect().await, storage, stop.clone()));
    let mut producers = JoinSet::new();
    for seed in 0..PRODUCERS {
        producers.spawn(produce(db.connect().await, seed));
    }
    let mut committed = BTreeSet::new();
    while let Some(ids) = producers.join_next().await {
        committed.extend(ids.expect("no producer fails, least of all with a deadlock"));
    }
    stop.notify_one();
    turning.await.expect("turning the ring");
    committed
}

/// Rows that break a rule, told by `query`, where `$schema` stands for the storage's schema.
async fn assert_none(client: &Client, storage: Storage, rule: &str, query: &str) {
    let offenders = rows(client, &format!("({})", query.replace("$schema", storage.schema())), &[]).await;
    assert_eq!(offenders, [] as [Value; 0], "{rule}, {storage:?}");
}

/// The rules, each as a query for what breaks it.
const RULES: [(&str, &str); 5] = [
    (
        "positions are unique within a lane",
        "SELECT queue, priority, enqueue_shard, lane_seq, count(*) FROM $schema.ready_entries GROUP BY 1, 2, 3, 4 HAVING count(*) > 1",
    ),
    (
        "commit order is position order within a lane",
        "SELECT * FROM (SELECT queue, priority, enqueue_shard, lane_seq, pg_xact_commit_timestamp(xmin) AS at,
                lag(pg_xact_commit_timestamp(xmin)) OVER (PARTITION BY queue, priority, enqueue_shard ORDER BY lane_seq) AS before
                FROM $schema.ready_entries) AS s WHERE at < before OR at IS NULL",
    ),
    (
        "the ring position never goes back within a lane",
        "SELECT * FROM (SELECT queue, priority, enqueue_shard, lane_seq, ready_generation AS generation,
                lag(ready_generation) OVER (PARTITION BY queue, priority, enqueue_shard ORDER BY lane_seq) AS before
                FROM $schema.ready_entries) AS s WHERE generation < before",
    ),
    (
        "every row is in exactly one segment, of its slot and time",
        "SELECT r.queue, r.priority, r.enqueue_shard, r.lane_seq, count(s.queue) FROM $schema.ready_entries AS r
         LEFT JOIN $schema.ready_segments AS s ON (s.ready_slot, s.ready_generation, s.queue, s.priority, s.enqueue_shard, s.first_run_at)
              = (r.ready_slot, r.ready_generation, r.queue, r.priority, r.enqueue_shard, r.run_at)
              AND r.lane_seq >= s.first_lane_seq AND r.lane_seq < s.next_lane_seq
         GROUP BY 1, 2, 3, 4 HAVING count(s.queue) <> 1",
    ),
    (
        "segments cover rows only",
        "SELECT s.queue, s.priority, s.enqueue_shard, n FROM $schema.ready_segments AS s,
                generate_series(s.first_lane_seq, s.next_lane_seq - 1) AS n
         EXCEPT SELECT queue, priority, enqueue_shard, lane_seq FROM $schema.ready_entries",
    ),
];

async fn producers_keep_the_rules(storage: Storage, template: Template) {
    let db = Db::on(cluster(), template).await;
    let client = db.connect().await;
    for (queue, shards) in QUEUES {
        storage.shard(&client, queue, shards).await;
    }
    let committed = run_producers(&db, storage).await;
    assert!(committed.len() > 1000, "most transactions commit: {}", committed.len());

    for (rule, query) in RULES {
        assert_none(&client, storage, rule, query).await;
    }
    let ready = rows(&client, &storage.table("ready_entries"), &[]).await;
    let present: BTreeSet<i64> = ready.iter().map(|row| row["job_id"].as_i64().unwrap()).collect();
    assert_eq!((present.len(), &present), (ready.len(), &committed), "what was committed, and nothing else");
    let lanes: BTreeSet<_> = ready.iter().map(|r| format!("{}:{}:{}", r["queue"], r["priority"], r["enqueue_shard"])).collect();
    assert_eq!(lanes.len(), 28, "every lane was used: {lanes:?}");
    let behind = "SELECT h.queue, h.priority, h.enqueue_shard, s.last_value, max(r.lane_seq) FROM $schema.queue_enqueue_heads AS h
                  JOIN pg_sequences AS s ON s.schemaname = '$schema' AND s.sequencename = h.seq_name
                  JOIN $schema.ready_entries AS r USING (queue, priority, enqueue_shard)
                  GROUP BY 1, 2, 3, 4 HAVING s.last_value < max(r.lane_seq)";
    assert_none(&client, storage, "sequences are at or past the last position", behind).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_producers_keep_the_rules() {
    within("the producers", producers_keep_the_rules(Storage::Embedded, Template::Embedded)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attached_producers_keep_the_rules() {
    within("the producers", producers_keep_the_rules(Storage::Attached, Template::Awa)).await;
}
