//! `awa.insert_job_compat` for one job, by the statement that awa gives to its driver adapters.

use anyhow::Result;
use awa_model::InsertParams;
use awa_model::adapter::postgres::{INSERT_JOB_SQL, prepare_raw_job_insert};
use tokio_postgres::{Client, Statement};

use super::{Call, Candidate, Pace, backend_of};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

pub struct InsertJobCompat {
    client: Client,
    statement: Statement,
    backend: i32,
    staged: Vec<InsertParams>,
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
        Pace::Single
    }

    fn stage(&mut self, batches: &[Vec<Job>]) {
        self.staged = batches.iter().map(|jobs| jobs[0].to_params()).collect();
    }

    fn call(&mut self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let InsertParams { kind, args, opts } = self.staged[batch].clone();
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
            let _id: i64 = row.get("id");
            Ok(1)
        })
    }
}
