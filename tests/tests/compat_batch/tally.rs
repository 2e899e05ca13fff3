//! Producers of every sort, awa's and ours, that go for the same keys and lanes at random, and a tally of what they committed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Db, Failure, jobs};
use awa_model::{AwaError, InsertOpts, InsertParams, QueueStorage, UniqueOpts};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use sqlx::PgPool;
use tokio_postgres::{Client, Error};

use crate::calls::Way;
use crate::old::{insert_original, insert_original_or_skip};

/// Queues with the number of their shards: 14 lanes with two priorities.
pub const QUEUES: [(&str, i16); 3] = [("alpha", 1), ("beta", 2), ("gamma", 4)];

pub const KIND: &str = "mixed";

/// Jobs for each key there is at a time: keys are taken anew all the while, and several times each.
const JOBS_A_KEY: i64 = 25;

/// What was committed, told apart by `args.n`, and what was tried.
#[derive(Default)]
pub struct Tally {
    next: AtomicI64,
    committed: Mutex<BTreeSet<i64>>,
    skipped: AtomicI64,
    refused: AtomicI64,
    rolled_back: AtomicI64,
}

impl Tally {
    /// All jobs that were committed.
    pub fn committed(&self) -> BTreeSet<i64> {
        self.committed.lock().expect("no producer panics with it").clone()
    }

    /// What there was to be seen, for a test that wants to have seen it.
    pub fn counts(&self) -> [i64; 4] {
        let committed = self.committed().len() as i64;
        [
            committed,
            self.skipped.load(Ordering::Relaxed),
            self.refused.load(Ordering::Relaxed),
            self.rolled_back.load(Ordering::Relaxed),
        ]
    }

    fn commit(&self, batch: &[InsertParams], outcomes: impl Iterator<Item = bool>) {
        let mut committed = self.committed.lock().expect("no producer panics with it");
        for (job, enqueued) in batch.iter().zip(outcomes) {
            if enqueued {
                assert!(committed.insert(job.args["n"].as_i64().expect("a number")));
            } else {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A job that no other producer sends, with a key, a lane and a time at random.
    fn job(&self, rng: &mut StdRng) -> InsertParams {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let key = n / JOBS_A_KEY + rng.random_range(0..20);
        // Scheduled, available and running: what was worked gives its key back.
        let unique = UniqueOpts { by_args: false, by_period: Some(key), states: 0b0000_0111, ..Default::default() };
        let opts = InsertOpts {
            queue: QUEUES[rng.random_range(0..QUEUES.len())].0.to_owned(),
            priority: rng.random_range(1..=2),
            ordering_key: rng.random_bool(0.5).then(|| vec![rng.random_range(0..8)]),
            run_at: rng.random_bool(0.1).then(|| chrono::Utc::now() + chrono::TimeDelta::milliseconds(rng.random_range(0..300))),
            unique: rng.random_bool(0.6).then_some(unique),
            ..Default::default()
        };
        jobs::job_with(KIND, json!({"n": n}), opts)
    }

    fn batch(&self, rng: &mut StdRng) -> Vec<InsertParams> {
        let mut batch: Vec<_> = (0..rng.random_range(1..7)).map(|_| self.job(rng)).collect();
        batch.shuffle(rng);
        batch
    }
}

/// A sort of producer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Producer {
    /// awa's own function as `insert_many_copy` calls it, one savepoint a job.
    OriginalSkip,
    /// awa's own function as `insert` calls it, all jobs or none.
    Original,
    /// `QueueStorage::enqueue_params_copy`.
    StoreCopy,
    /// `QueueStorage::enqueue_params_batch`.
    StoreBatch,
    /// awa's client through the function that was replaced.
    ClientMany,
    ClientCopy,
    /// The extension, raising.
    Raise(Way),
    /// The extension, skipping: no conflict and no deadlock reaches it.
    Skip(Way),
}

impl Producer {
    /// The cast: so many of unmodified awa that deadlocks happen all the time.
    pub fn all() -> Vec<Self> {
        use Producer::*;
        let mut all = vec![OriginalSkip; 3];
        all.extend([Original, StoreCopy, StoreCopy, StoreBatch, ClientMany, ClientCopy, ClientCopy]);
        all.extend([Way::Batch, Way::Columns, Way::Copy, Way::CompatBatch].map(Raise));
        all.extend(Way::SKIPPING.map(Skip));
        all
    }

    fn may_fail(self, sqlstate: &str) -> bool {
        !matches!(self, Self::Skip(_)) && ["23505", "40P01"].contains(&sqlstate)
    }
}

/// What producers work with.
pub struct Stage {
    pub tally: Arc<Tally>,
    pub pool: PgPool,
    pub store: Arc<QueueStorage>,
}

impl Stage {
    /// Has a producer enqueue and commit, or not, until `end`.
    pub async fn produce(self: Arc<Self>, db: Arc<Db>, producer: Producer, seed: u64, end: Instant) {
        let mut rng = StdRng::seed_from_u64(seed);
        let client = db.connect().await;
        while Instant::now() < end {
            let batch = self.tally.batch(&mut rng);
            let result = match producer {
                Producer::StoreCopy | Producer::StoreBatch => self.through_the_store(producer, &batch).await,
                Producer::ClientMany | Producer::ClientCopy => self.through_the_client(producer, &batch, &mut rng).await,
                _ => self.through_sql(&client, producer, &batch, &mut rng).await,
            };
            if let Err(refusal) = result {
                assert!(producer.may_fail(&refusal.sqlstate), "{producer:?}: {refusal:?}");
                self.tally.refused.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await;
        }
    }

    /// awa's direct paths: a transaction of their own.
    async fn through_the_store(&self, producer: Producer, batch: &[InsertParams]) -> Result<(), Refusal> {
        let enqueued = match producer {
            Producer::StoreCopy => self.store.enqueue_params_copy(&self.pool, batch).await,
            _ => self.store.enqueue_params_batch(&self.pool, batch).await,
        };
        assert_eq!(enqueued.map_err(Refusal::from)?, batch.len());
        self.tally.commit(batch, batch.iter().map(|_| true));
        Ok(())
    }

    async fn through_the_client(&self, producer: Producer, batch: &[InsertParams], rng: &mut StdRng) -> Result<(), Refusal> {
        let mut tx = self.pool.begin().await.expect("BEGIN");
        let inserted = match producer {
            Producer::ClientMany => awa_model::insert_many(&mut *tx, batch).await,
            _ => awa_model::insert_many_copy(&mut tx, batch).await,
        };
        let present: BTreeSet<i64> =
            inserted.map_err(Refusal::from)?.iter().map(|job| job.args["n"].as_i64().expect("a number")).collect();
        if rng.random_bool(0.2) {
            tx.rollback().await.expect("ROLLBACK");
            self.tally.rolled_back.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        tx.commit().await.expect("COMMIT");
        self.tally.commit(batch, batch.iter().map(|job| present.contains(&job.args["n"].as_i64().expect("a number"))));
        Ok(())
    }

    async fn through_sql(
        &self,
        client: &Client,
        producer: Producer,
        batch: &[InsertParams],
        rng: &mut StdRng,
    ) -> Result<(), Refusal> {
        let rows: Vec<Row> = batch.iter().map(Row::prepared).collect();
        let alone = matches!(producer, Producer::Raise(_) | Producer::Skip(_)) && rng.random_bool(0.5);
        if !alone {
            client.batch_execute("BEGIN; INSERT INTO orders VALUES (1)").await.expect("BEGIN");
        }
        let outcomes = call(client, producer, &rows).await;
        if outcomes.is_ok() && rng.random_bool(0.3) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..20))).await;
        }
        let commit = alone || outcomes.is_ok() && rng.random_bool(0.8);
        if !alone {
            client.batch_execute(if commit { "COMMIT" } else { "ROLLBACK" }).await.expect("the end of a transaction");
        }
        let outcomes = outcomes.map_err(Refusal::from)?;
        if commit {
            self.tally.commit(batch, outcomes.iter().map(Option::is_some));
        } else {
            self.tally.rolled_back.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

async fn call(client: &Client, producer: Producer, rows: &[Row]) -> Result<Vec<Option<i64>>, Error> {
    let mut outcomes = Vec::new();
    match producer {
        Producer::Raise(way) => return way.enqueue(client, rows).await,
        Producer::Skip(way) => return way.skip(client, rows).await,
        Producer::OriginalSkip => {
            for row in rows {
                outcomes.push(insert_original_or_skip(client, row).await?);
            }
        }
        _ => {
            for row in rows {
                outcomes.push(insert_original(client, row).await?["id"].as_i64());
            }
        }
    }
    Ok(outcomes)
}

/// Why a call enqueued nothing.
#[derive(Debug)]
pub struct Refusal {
    sqlstate: String,
    _report: String,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let Failure { sqlstate, message, detail, context, .. } = error.into();
        Self { sqlstate, _report: format!("{message}\n{detail}\n{context}") }
    }
}

impl From<AwaError> for Refusal {
    fn from(error: AwaError) -> Self {
        let sqlstate = match &error {
            AwaError::UniqueConflict { .. } => "23505".to_owned(),
            AwaError::Database(sqlx::Error::Database(report)) => report.code().expect("a code").into_owned(),
            _ => panic!("{error:?}"),
        };
        Self { sqlstate, _report: error.to_string() }
    }
}
