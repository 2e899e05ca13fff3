//! An awa database whose rings the test turns, jobs for it, and what maintenance says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use awa_ingest_tests::{Cluster, DEADLINE, Db, Template, assert_same_rows, jobs, rows};
use awa_model::{InsertOpts, InsertParams, QueueCounts, QueueStorage, QueueStorageConfig, RotateOutcome};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_postgres::Client;

use crate::actor::{Actor, BATCHES, KIND, ROWS, Setup};

/// An awa database.
pub struct Stage {
    /// The database.
    pub db: Db,
    /// A session of the superuser.
    pub client: Client,
    /// awa's connections.
    pub pool: PgPool,
    /// awa's own storage.
    pub store: QueueStorage,
    /// The storage's schema.
    pub schema: &'static str,
}

impl Stage {
    /// On the shared server.
    pub async fn new() -> Self {
        Self::of(Db::awa().await, QueueStorageConfig::default(), "awa").await
    }

    /// On a server of the test's own.
    pub async fn on(cluster: Arc<Cluster>) -> Self {
        Self::of(Db::on(cluster, Template::Awa).await, QueueStorageConfig::default(), "awa").await
    }

    /// Where an ordinary role owns awa.
    pub async fn of_a_role() -> Self {
        Self::of(Db::awa_of_a_role().await.0, QueueStorageConfig::default(), "awa").await
    }

    /// With the storage in another schema, and smaller rings.
    pub async fn elsewhere(schema: &'static str) -> Self {
        let config = config_of(schema);
        let db = Db::awa().await;
        QueueStorage::new(config.clone()).expect("a schema").install(&db.pool().await).await.expect("installing the storage");
        Self::of(db, config, schema).await
    }

    async fn of(db: Db, config: QueueStorageConfig, schema: &'static str) -> Self {
        let (client, pool) = (db.connect().await, db.pool().await);
        Self { db, client, pool, store: QueueStorage::new(config).expect("a storage"), schema }
    }

    /// Enqueues a job for each of `ends`. Returns their ids.
    pub async fn enqueue(&self, queue: &str, ends: &[&str]) -> Vec<i64> {
        let batch: Vec<InsertParams> = ends.iter().map(|end| job(queue, end)).collect();
        jobs::enqueue_batch(&self.client, &batch).await.iter().map(|job| job.job_id.expect("an id")).collect()
    }

    /// Has an awa worker work `count` jobs.
    pub async fn work(&self, count: usize) -> Vec<i64> {
        let actor = self.actor().await;
        actor.wait_for(count).await;
        self.settle().await;
        let worked: Vec<i64> = actor.stop().await.iter().map(|job| job.id).collect();
        assert_eq!(worked.len(), count, "no job is worked twice");
        worked
    }

    /// Waits until awa has written down how all started jobs ended.
    pub async fn settle(&self) {
        let begun = Instant::now();
        while self.counts(ROWS).await.running + self.counts(BATCHES).await.running > 0 {
            assert!(begun.elapsed() < DEADLINE, "jobs still run");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// An awa worker that leaves the rings alone.
    pub async fn actor(&self) -> Actor {
        let storage = if self.schema == "awa" { QueueStorageConfig::default() } else { config_of(self.schema) };
        Actor::start(&self.db, Setup { storage, ..Setup::default() }).await
    }

    /// Enqueues jobs, and has them worked.
    pub async fn play(&self, queue: &str, ends: &[&str]) -> Vec<i64> {
        let ids = self.enqueue(queue, ends).await;
        self.work(ids.len()).await;
        ids
    }

    /// Turns a ring by one slot. Whether it could.
    pub async fn turn(&self, ring: &str) -> bool {
        let turned = match ring {
            "queue" => self.store.rotate(&self.pool).await,
            "lease" => self.store.rotate_leases(&self.pool).await,
            _ => self.store.rotate_claims(&self.pool).await,
        };
        matches!(turned.expect("awa's rotation"), RotateOutcome::Rotated { .. })
    }

    /// Turns all three, each of which must be free to.
    pub async fn turn_all(&self) {
        for ring in RINGS {
            assert!(self.turn(ring).await, "the {ring} ring turns");
        }
    }

    /// Turns a ring until the slot that was current is the oldest, which is the one that a prune looks at. All others must be empty.
    pub async fn seal(&self, ring: &str) {
        let slots: i32 = self.value(&format!("SELECT slot_count FROM {}.{ring}_ring_state", self.schema)).await;
        for _ in 1..slots {
            assert!(self.turn(ring).await, "the {ring} ring turns");
        }
    }

    /// Seals the current slots of all rings.
    pub async fn seal_all(&self) {
        for ring in RINGS {
            self.seal(ring).await;
        }
    }

    /// awa's own exact counts.
    pub async fn counts(&self, queue: &str) -> QueueCounts {
        self.store.queue_counts(&self.pool, queue).await.expect("queue_counts")
    }

    /// Runs a prune in the stage's own session.
    pub async fn prune(&self) -> Vec<Step> {
        maintain(&self.client, "prune").await
    }

    /// The one value of a query.
    pub async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, sql: &str) -> T {
        self.client.query_one(sql, &[]).await.expect(sql).get(0)
    }

    /// Runs statements.
    pub async fn run(&self, sql: &str) {
        run(&self.client, sql).await;
    }

    /// All that the storage's tables hold.
    pub async fn dump(&self) -> Dump {
        let sql = "SELECT oid::regclass::text FROM pg_class
                    WHERE relkind = 'r' AND relnamespace = $1::text::regnamespace AND relname ~ $2 ORDER BY 1";
        let mut dump = BTreeMap::new();
        for row in self.client.query(sql, &[&self.schema, &STORED]).await.expect(sql) {
            let table: String = row.get(0);
            dump.insert(table.clone(), rows(&self.client, &table, &[]).await);
        }
        dump
    }

    /// Fails with the rows that differ from `before`.
    pub async fn assert_unchanged(&self, before: &Dump, when: &str) {
        for (table, rows) in self.dump().await {
            assert_same_rows(&format!("{table}, {when}"), &before[&table], &rows);
        }
    }

    /// What was counted for good: queue, completed, failed.
    pub async fn rollups(&self) -> Vec<(String, i64, i64)> {
        let sql = format!(
            "SELECT queue, pruned_completed_count, pruned_failed_count FROM {}.queue_terminal_rollups ORDER BY queue",
            self.schema
        );
        let rows = self.client.query(&sql, &[]).await.expect(&sql);
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }

    /// Rows in the partitions of a slot.
    pub async fn rows_of_slot(&self, ring: &str, slot: i32) -> i64 {
        let mut sum = 0;
        for table in children(ring) {
            sum += self.value::<i64>(&format!("SELECT count(*) FROM {}.{table}_{slot}", self.schema)).await;
        }
        sum
    }
}

/// Rows by table.
pub type Dump = BTreeMap<String, Vec<Value>>;

/// Names of the tables that hold jobs and what is known about them, without those of running workers.
const STORED: &str =
    "^(ready_|done_|deferred_|leases|lease_|receipt_|claim_|queue_(lanes|enqueue_heads|claim_heads|ring|terminal))";

/// Small rings, for storages in schemas of their own.
pub fn config_of(schema: &str) -> QueueStorageConfig {
    QueueStorageConfig {
        schema: schema.into(),
        queue_slot_count: 4,
        lease_slot_count: 3,
        claim_slot_count: 3,
        ..Default::default()
    }
}

/// The rings by name.
pub const RINGS: [&str; 3] = ["queue", "lease", "claim"];

/// The tables that have a partition for each slot.
pub fn children(ring: &str) -> &'static [&'static str] {
    match ring {
        "queue" => &[
            "ready_entries",
            "ready_claim_attempt_batches",
            "done_entries",
            "ready_tombstones",
            "ready_segments",
            "receipt_completion_batches",
            "receipt_completion_tombstones",
            "queue_terminal_count_deltas",
        ],
        "lease" => &["leases"],
        _ => &["lease_claims", "lease_claim_batches", "lease_claim_closures", "lease_claim_closure_batches"],
    }
}

/// A job that ends as `end` says.
pub fn job(queue: &str, end: &str) -> InsertParams {
    let opts = InsertOpts { queue: queue.into(), max_attempts: 1, ..Default::default() };
    jobs::job_with(KIND, json!({"end": end, "text": "kept"}), opts)
}

/// One row of what `run_maintenance` returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// A table.
    pub relation: Option<String>,
    /// A ring, or `rollup`.
    pub ring: Option<String>,
    /// A slot.
    pub slot: Option<i32>,
    /// How it ended.
    pub outcome: String,
    /// Why.
    pub reason: Option<String>,
    /// Rows.
    pub rows: Option<i64>,
    /// What went wrong.
    pub sqlstate: Option<String>,
    /// And how the server says it.
    pub error: Option<String>,
}

impl Step {
    /// Outcome and reason.
    pub fn ended(&self) -> (&str, Option<&str>) {
        (&self.outcome, self.reason.as_deref())
    }
}

/// Runs a task.
pub async fn maintain(client: &Client, task: &str) -> Vec<Step> {
    try_maintain(client, task).await.expect("run_maintenance")
}

/// The same where it may fail.
pub async fn try_maintain(client: &Client, task: &str) -> Result<Vec<Step>, tokio_postgres::Error> {
    let rows = client.query("SELECT * FROM awa_ingest.run_maintenance($1)", &[&task]).await?;
    let step = |row: &tokio_postgres::Row| Step {
        relation: row.get("relation"),
        ring: row.get("ring"),
        slot: row.get("slot"),
        outcome: row.get("outcome"),
        reason: row.get("reason"),
        rows: row.get("rows"),
        sqlstate: row.get("sqlstate"),
        error: row.get("error"),
    };
    Ok(rows.iter().map(step).collect())
}

/// The steps of a ring, or of `rollup`.
pub fn of_ring<'a>(steps: &'a [Step], ring: &str) -> Vec<&'a Step> {
    steps.iter().filter(|step| step.ring.as_deref() == Some(ring)).collect()
}

/// The only step of a ring.
#[track_caller]
pub fn only<'a>(steps: &'a [Step], ring: &str) -> &'a Step {
    match of_ring(steps, ring)[..] {
        [step] => step,
        ref others => panic!("one step of {ring}, but found {others:?}"),
    }
}

/// Asserts how the step of a ring ended, and for which slot.
#[track_caller]
pub fn assert_step(steps: &[Step], ring: &str, slot: Option<i32>, ended: (&str, Option<&str>)) {
    let step = only(steps, ring);
    assert_eq!((step.slot, step.ended()), (slot, ended), "{steps:#?}");
}

/// Runs statements.
pub async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}
