//! `awa.enqueue_columns`: the batch as parallel arrays, bound in the binary format.

use anyhow::Result;
use awa_model::unique::compute_unique_key;
use serde_json::Value;
use tokio_postgres::{Client, Statement};

use super::{Call, Candidate, backend_of};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

const SQL: &str = "SELECT ord, job_id, conflicts_with FROM awa.enqueue_columns(
    kind => $1, args => $2, queue => $3, unique_key => $4, unique_states => $5)";
/// scheduled, available, running, completed and retryable: the default of awa's clients.
const UNIQUE_STATES: &[&str] = &["11111000"];

pub struct EnqueueColumns {
    client: Client,
    statement: Statement,
    backend: i32,
    staged: Vec<Vec<Job>>,
}

impl EnqueueColumns {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let client = stores.connect(Store::Awa).await?;
        let statement = client.prepare(SQL).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { client, statement, backend, staged: Vec::new() })
    }
}

impl Candidate for EnqueueColumns {
    fn name(&self) -> &'static str {
        super::ENQUEUE_COLUMNS
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn stage(&mut self, batches: &[Vec<Job>]) {
        self.staged = batches.to_vec();
    }

    fn call(&mut self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let jobs = &self.staged[batch];
            let kinds: Vec<&str> = jobs.iter().map(|job| job.kind).collect();
            let args: Vec<&Value> = jobs.iter().map(|job| &job.args).collect();
            let queues: Vec<&str> = jobs.iter().map(|job| job.queue.as_str()).collect();
            let keys = jobs[0].unique.then(|| unique_keys(jobs));
            let states = keys.is_some().then_some(UNIQUE_STATES);
            let rows = self.client.query(&self.statement, &[&kinds, &args, &queues, &keys, &states]).await?;
            Ok(rows.iter().filter(|row| row.get::<_, Option<i64>>(1).is_some()).count())
        })
    }
}

/// The keys that awa's clients compute by default. Like theirs, this is part of the timing.
fn unique_keys(jobs: &[Job]) -> Vec<Vec<u8>> {
    jobs.iter().map(|job| compute_unique_key(job.kind, None, Some(&job.args), None)).collect()
}
