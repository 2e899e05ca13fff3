//! Many calls in one transaction, mixed with savepoints and rolled back in part, behave like ordinary inserts.

use std::collections::BTreeMap;

use awa_ingest_tests::{Storage, jobs, rows};
use awa_model::{InsertOpts, UniqueOpts};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio_postgres::Client;

const KEYS: i64 = 40;

/// What the transaction should leave: ids of jobs, and of those that hold a key, by the key.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    jobs: Vec<i64>,
    holders: BTreeMap<i64, i64>,
}

impl Model {
    /// A batch with new jobs and with keys that may be taken, by this transaction or before; the answer must be what the model says.
    async fn enqueue(&mut self, client: &Client, rng: &mut StdRng) {
        let keys: Vec<Option<i64>> =
            (0..rng.random_range(1..8)).map(|_| rng.random_bool(0.5).then(|| rng.random_range(0..KEYS))).collect();
        let batch: Vec<_> = keys.iter().map(|key| job(*key, rng)).collect();
        for (row, key) in
            jobs::try_enqueue_batch(client, &batch, "skip").await.expect("skipping raises nothing").into_iter().zip(keys)
        {
            let holder = key.and_then(|key| self.holders.get(&key).copied());
            assert_eq!(row.conflicts_with, holder, "{row:?}");
            assert_eq!(row.job_id.is_none(), holder.is_some(), "{row:?}");
            if let Some(id) = row.job_id {
                self.jobs.push(id);
                key.map(|key| self.holders.insert(key, id));
            }
        }
    }
}

fn job(key: Option<i64>, rng: &mut StdRng) -> awa_model::InsertParams {
    let opts = InsertOpts {
        queue: ["a", "b", "c"][rng.random_range(0..3)].into(),
        priority: rng.random_range(1..=2),
        run_at: rng.random_bool(0.3).then(chrono::Utc::now),
        unique: key.map(|_| UniqueOpts::default()),
        ..Default::default()
    };
    jobs::job_with(if key.is_some() { "once" } else { "plain" }, json!(key), opts)
}

/// A transaction of random calls, with savepoints opened, released and rolled back to. Returns what it left.
async fn transaction(client: &Client, before: &Model, rng: &mut StdRng) -> Model {
    client.batch_execute("BEGIN").await.unwrap();
    let mut current = before.clone();
    let mut savepoints: Vec<Model> = Vec::new();
    for _ in 0..30 {
        let depth = savepoints.len();
        match rng.random_range(0..10) {
            0..=4 => current.enqueue(client, rng).await,
            5..=6 => {
                client.batch_execute(&format!("SAVEPOINT s{depth}")).await.unwrap();
                savepoints.push(current.clone());
            }
            7 if depth > 0 => {
                client.batch_execute(&format!("RELEASE s{}", depth - 1)).await.unwrap();
                savepoints.pop();
            }
            8.. if depth > 0 => {
                let to = rng.random_range(0..depth);
                client.batch_execute(&format!("ROLLBACK TO s{to}")).await.unwrap();
                savepoints.truncate(to + 1);
                current = savepoints[to].clone();
            }
            _ => {}
        }
    }
    if rng.random_bool(0.3) {
        client.batch_execute("ROLLBACK").await.unwrap();
        return before.clone();
    }
    client.batch_execute("COMMIT").await.unwrap();
    current
}

async fn assert_stored(client: &Client, storage: Storage, model: &Model) {
    let ids = format!(
        "SELECT array(SELECT job_id FROM {} UNION ALL SELECT job_id FROM {} ORDER BY 1)",
        storage.table("ready_entries"),
        storage.table("deferred_jobs")
    );
    let stored: Vec<i64> = client.query_one(&ids, &[]).await.unwrap().get(0);
    assert_eq!(stored, model.jobs, "{storage:?}");
    let claims = format!("SELECT array(SELECT job_id FROM {} ORDER BY 1)", storage.table("job_unique_claims"));
    let mut holders: Vec<i64> = model.holders.values().copied().collect();
    holders.sort_unstable();
    assert_eq!(client.query_one(&claims, &[]).await.unwrap().get::<_, Vec<i64>>(0), holders, "{storage:?}");

    // Segments and rows name the same positions, each once.
    let both = format!(
        "(SELECT queue, priority, enqueue_shard, lane_seq FROM {entries}
          UNION ALL SELECT queue, priority, enqueue_shard, generate_series(first_lane_seq, next_lane_seq - 1) FROM {segments})",
        entries = storage.table("ready_entries"),
        segments = storage.table("ready_segments"),
    );
    let odd = format!("(SELECT * FROM {both} AS p GROUP BY queue, priority, enqueue_shard, lane_seq HAVING count(*) <> 2)");
    assert_eq!(rows(client, &odd, &[]).await, Vec::<Value>::new(), "{storage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_rollbacks_leave_what_inserts_would() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let (mut model, mut rng) = (Model::default(), StdRng::seed_from_u64(20));
        for _ in 0..25 {
            model = transaction(&client, &model, &mut rng).await;
            assert_stored(&client, storage, &model).await;
        }
        assert!(model.jobs.len() > 300 && model.holders.len() > 30, "the transactions did something");
    }
}
