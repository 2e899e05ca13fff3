//! Batches that are sent again, by several producers at once: the keys of every second job are claimed already, and these jobs are skipped.

use anyhow::Result;
use awa_model::{InsertParams, QueueStorage};
use futures_util::future::try_join_all;
use tokio_postgres::{Client, Statement};

use super::awa_pool::AwaPool;
use super::text::Text;
use super::{Call, Candidate, Pace, backend_of};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

const SQL: &str = "SELECT * FROM awa_ingest.insert_many_skip_unique_conflicts($1)";

pub struct Replay {
    name: &'static str,
    calls_each: usize,
    producers: Vec<Producer>,
    /// Enqueues what has been enqueued before.
    before: AwaPool,
    /// The same batches as each kind of producer takes them.
    jobs: Vec<Vec<Job>>,
    params: Vec<Vec<InsertParams>>,
}

/// A connection with its way to skip.
enum Producer {
    /// `awa_ingest.insert_many_skip_unique_conflicts`, the jobs as one JSON text.
    Skip { client: Client, statement: Statement, backend: i32 },
    /// awa's `insert_many_copy`: with keys, one savepoint and one call of `awa.insert_job_compat` a job.
    Copy(AwaPool),
}

impl Replay {
    pub async fn skip(name: &'static str, count: usize, stores: &Stores) -> Result<Self> {
        let producers = try_join_all((0..count).map(|_| Producer::skip(stores))).await?;
        Self::new(name, Store::Attached, 20, producers, stores).await
    }

    /// Two calls of each of sixteen producers are six seconds.
    pub async fn copy(name: &'static str, count: usize, stores: &Stores) -> Result<Self> {
        let pools = try_join_all((0..count).map(|_| AwaPool::new(stores, Store::Awa))).await?;
        Self::new(name, Store::Awa, (32 / count).min(4), pools.into_iter().map(Producer::Copy).collect(), stores).await
    }

    async fn new(name: &'static str, store: Store, calls_each: usize, producers: Vec<Producer>, stores: &Stores) -> Result<Self> {
        let before = AwaPool::new(stores, store).await?;
        Ok(Self { name, calls_each, producers, before, jobs: Vec::new(), params: Vec::new() })
    }
}

impl Candidate for Replay {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backend(&self) -> i32 {
        self.producers[0].backend()
    }

    fn backends(&self) -> Vec<i32> {
        self.producers.iter().map(Producer::backend).collect()
    }

    fn store(&self) -> Store {
        self.before.store
    }

    fn pace(&self) -> Pace {
        Pace::Producers { count: self.producers.len(), calls_each: self.calls_each }
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.before.stage(batches.iter().map(|jobs| jobs.iter().step_by(2).cloned().collect()).collect());
        self.params = batches.iter().map(|jobs| jobs.iter().map(Job::to_params).collect()).collect();
        self.jobs = batches;
    }

    fn before(&self) -> Call<'_> {
        Box::pin(async {
            let storage = QueueStorage::from_existing_schema("awa")?;
            let mut enqueued = 0;
            for jobs in &self.before.staged {
                enqueued += storage.enqueue_params_copy(&self.before.pool, jobs).await?;
            }
            Ok(enqueued)
        })
    }

    /// The batches are the producers' in turns.
    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            match &self.producers[batch % self.producers.len()] {
                Producer::Skip { client, statement, .. } => {
                    let json = Text(serde_json::to_vec(&self.jobs[batch])?.into());
                    Ok(client.query(statement, &[&json]).await?.len())
                }
                Producer::Copy(awa) => Ok(awa_model::insert_many_copy_from_pool(&awa.pool, &self.params[batch]).await?.len()),
            }
        })
    }
}

impl Producer {
    async fn skip(stores: &Stores) -> Result<Self> {
        let client = stores.connect(Store::Attached).await?;
        let statement = client.prepare(SQL).await?;
        let backend = backend_of(&client).await?;
        Ok(Self::Skip { client, statement, backend })
    }

    fn backend(&self) -> i32 {
        match self {
            Self::Skip { backend, .. } => *backend,
            Self::Copy(awa) => awa.backend,
        }
    }
}
