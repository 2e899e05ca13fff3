//! `awa.enqueue_columns`: the batch as parallel arrays, bound in the binary format.

use anyhow::Result;
use serde_json::Value;
use tokio_postgres::{Client, Statement};

use super::{Call, Candidate, backend_of};
use crate::jobs::{Job, UNIQUE_STATES};
use crate::stores::{Store, Stores};

const SQL: &str = "SELECT ord, job_id, conflicts_with FROM awa.enqueue_columns(
    kind => $1, args => $2::jsonb[], queue => $3, unique_key => $4, unique_states => $5)";

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

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = batches;
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let jobs = &self.staged[batch];
            let kinds: Vec<&str> = jobs.iter().map(|job| job.kind).collect();
            let args: Vec<&Value> = jobs.iter().map(|job| &job.args).collect();
            let queues: Vec<&str> = jobs.iter().map(|job| job.queue.as_str()).collect();
            // Like awa's clients, which compute them inside their call.
            let keys: Option<Vec<_>> = jobs[0].unique.then(|| jobs.iter().map(Job::unique_key).collect());
            let states = keys.is_some().then_some(vec![UNIQUE_STATES]);
            let rows = self.client.query(&self.statement, &[&kinds, &args, &queues, &keys, &states]).await?;
            Ok(rows.iter().filter(|row| row.get::<_, Option<i64>>(1).is_some()).count())
        })
    }
}
