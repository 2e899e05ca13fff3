//! `awa.insert_job_compat`, one call a job, by the statement that awa gives to its driver adapters; a batch is a transaction of such
//! calls.

use anyhow::Result;
use awa_model::InsertParams;
use awa_model::adapter::postgres::{INSERT_JOB_SQL, prepare_raw_job_insert};
use tokio_postgres::{Client, Statement};

use super::{Call, Candidate, Pace, backend_of, begin, commit};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

pub struct InsertJobCompat {
    client: Client,
    statement: Statement,
    backend: i32,
    staged: Vec<Vec<InsertParams>>,
}

impl InsertJobCompat {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let client = stores.connect(Store::Awa).await?;
        let statement = client.prepare(INSERT_JOB_SQL).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { client, statement, backend, staged: Vec::new() })
    }
}

impl Candidate for InsertJobCompat {
    fn name(&self) -> &'static str {
        super::INSERT_JOB_COMPAT
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn pace(&self) -> Pace {
        Pace::Single(2_000)
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = batches.iter().map(|jobs| jobs.iter().map(Job::to_params).collect()).collect();
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let jobs = &self.staged[batch];
            begin(&self.client, jobs.len()).await?;
            for job in jobs {
                self.insert(job.clone()).await?;
            }
            commit(&self.client, jobs.len()).await?;
            Ok(jobs.len())
        })
    }
}

impl InsertJobCompat {
    async fn insert(&self, InsertParams { kind, args, opts }: InsertParams) -> Result<i64> {
        let job = prepare_raw_job_insert(kind, args, opts)?;
        let row = self
            .client
            .query_one(
                &self.statement,
                &[
                    &job.kind(),
                    &job.queue(),
                    job.args(),
                    &job.state_db_str(),
                    &job.priority(),
                    &job.max_attempts(),
                    &None::<std::time::SystemTime>,
                    job.metadata(),
                    &job.tags(),
                    &job.unique_key(),
                    &job.unique_states_bit_string(),
                    &job.ordering_key(),
                ],
            )
            .await?;
        Ok(row.get("id"))
    }
}
