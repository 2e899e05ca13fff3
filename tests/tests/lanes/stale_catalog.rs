//! Lanes that other sessions make while a transaction is open, at every isolation level: its snapshot, and what it knows of the
//! catalogs, are older than the lane.

use std::sync::atomic::{AtomicUsize, Ordering};

use awa_ingest_tests::{Db, Storage, jobs, rows, within};
use awa_model::{InsertOpts, InsertParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Error};

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn job(queue: &str, ordering_key: Option<Vec<u8>>) -> InsertParams {
    jobs::job_with("step", json!({}), InsertOpts { queue: queue.into(), ordering_key, ..Default::default() })
}

async fn send(client: &Client, queue: &str) -> Result<(), Error> {
    jobs::try_enqueue_batch(client, &[job(queue, None)], "error").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_younger_than_the_transaction() {
    for (storage, level) in Storage::BOTH.into_iter().flat_map(|storage| LEVELS.map(|level| (storage, level))) {
        let db = storage.db().await;
        let (old, new) = (db.connect().await, db.connect().await);
        send(&new, "old").await.unwrap();
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class");
        old.batch_execute(&begin).await.unwrap();
        send(&old, "old").await.expect(level);
        send(&new, "new").await.expect(level);
        send(&old, "new").await.unwrap_or_else(|error| panic!("{storage:?}, {level}: {error:?}"));
        // And with everything that it uses taken once already.
        send(&new, "newer").await.expect(level);
        send(&old, "newer").await.unwrap_or_else(|error| panic!("{storage:?}, {level}: {error:?}"));
        old.batch_execute("COMMIT").await.expect(level);
        let lanes = "(SELECT queue, array_agg(lane_seq ORDER BY lane_seq) AS positions FROM {} GROUP BY queue)";
        let lanes = rows(&new, &lanes.replace("{}", &storage.table("ready_entries")), &[]).await;
        assert!(lanes.len() == 3 && lanes.iter().all(|lane| lane["positions"] == json!([1, 2])), "{lanes:?}");
    }
}

const SESSIONS: u64 = 6;
const TRANSACTIONS: usize = 60;
const SHARDS: i16 = 4;

/// Where the sessions are: each new batch is for queues that nobody or only one of the others has used.
static FRONT: AtomicUsize = AtomicUsize::new(0);

fn batch(chance: &mut StdRng) -> Vec<InsertParams> {
    let front = FRONT.fetch_add(1, Ordering::Relaxed) / 2;
    let jobs = chance.random_range(1..8);
    let mut next = || job(&format!("q{}", front + chance.random_range(0..3)), Some(vec![chance.random()]));
    (0..jobs).map(|_| next()).collect()
}

/// One transaction, which has looked at the catalogs before; returns the jobs it sent, or the SQLSTATE.
async fn transaction(client: &Client, level: &str, jobs: &[InsertParams]) -> Result<usize, String> {
    client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class")).await.unwrap();
    let sent = jobs::try_enqueue_batch(client, jobs, "error").await;
    client.batch_execute("COMMIT").await.unwrap();
    let report = |error: Error| format!("{} ({error:?})", error.code().map_or("no code", |code| code.code()));
    sent.map(|rows| rows.len()).map_err(report)
}

async fn session(client: Client, number: u64) -> usize {
    let mut chance = StdRng::seed_from_u64(number);
    let mut sent = 0;
    for _ in 0..TRANSACTIONS {
        let level = LEVELS[chance.random_range(0..2)];
        match transaction(&client, level, &batch(&mut chance)).await {
            Ok(jobs) => sent += jobs,
            Err(error) => assert!(level == "REPEATABLE READ" && error.starts_with("40001"), "{level}: {error}"),
        }
    }
    sent
}

async fn run_sessions(db: &Db) -> usize {
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        sessions.spawn(session(db.connect().await, number));
    }
    within("the sessions", sessions.join_all()).await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_meet_at_new_lanes() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        FRONT.store(0, Ordering::Relaxed);
        for queue in 0..=SESSIONS as usize * TRANSACTIONS / 2 + 3 {
            storage.shard(&client, &format!("q{queue}"), SHARDS).await;
        }
        let sent = run_sessions(&db).await;
        let positions =
            "(SELECT DISTINCT queue, priority, enqueue_shard, lane_seq FROM {})".replace("{}", &storage.table("ready_entries"));
        assert_eq!(rows(&client, &positions, &[]).await.len(), sent, "{storage:?}");
        let heads = "(SELECT FROM {} WHERE seq_name IS NULL)".replace("{}", &storage.table("queue_enqueue_heads"));
        assert!(rows(&client, &heads, &[]).await.is_empty(), "{storage:?}");
    }
}
