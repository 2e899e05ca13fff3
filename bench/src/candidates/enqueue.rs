//! `awa.enqueue`, one call a job; a batch is a transaction of such calls.

use anyhow::Result;
use serde_json::Value;
use tokio_postgres::{Client, Statement};

use super::{Call, Candidate, Pace, backend_of, begin, commit};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

const SQL: &str = "SELECT awa.enqueue(kind => $1, args => $2, queue => $3, uniqueness => $4::jsonb)";

pub struct Enqueue {
    client: Client,
    statement: Statement,
    backend: i32,
    staged: Vec<Vec<Job>>,
}

impl Enqueue {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let client = stores.connect(Store::Awa).await?;
        let statement = client.prepare(SQL).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { client, statement, backend, staged: Vec::new() })
    }
}

impl Candidate for Enqueue {
    fn name(&self) -> &'static str {
        super::ENQUEUE
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn pace(&self) -> Pace {
        Pace::Single(2_000)
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = batches;
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let jobs = &self.staged[batch];
            begin(&self.client, jobs.len()).await?;
            for job in jobs {
                let unique = job.unique.then_some(Value::Bool(true));
                let row = self.client.query_one(&self.statement, &[&job.kind, &job.args, &job.queue, &unique]).await?;
                let _id: i64 = row.get(0);
            }
            commit(&self.client, jobs.len()).await?;
            Ok(jobs.len())
        })
    }
}
