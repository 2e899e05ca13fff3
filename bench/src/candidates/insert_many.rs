//! awa's `insert_many`: one statement over `awa.insert_job_compat`, twelve parameters a job.

use anyhow::Result;

use super::awa_pool::AwaPool;
use super::{Call, Candidate, Pace};
use crate::jobs::Job;
use crate::stores::Stores;

/// A statement takes at most 65,535 parameters: larger batches go in pieces of this, in one transaction.
const JOBS_PER_STATEMENT: usize = 5_000;

pub struct InsertMany(AwaPool);

impl InsertMany {
    pub async fn new(stores: &Stores) -> Result<Self> {
        Ok(Self(AwaPool::new(stores).await?))
    }
}

impl Candidate for InsertMany {
    fn name(&self) -> &'static str {
        super::INSERT_MANY
    }

    fn backend(&self) -> i32 {
        self.0.backend
    }

    fn pace(&self) -> Pace {
        Pace::Slow
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.0.stage(batches);
    }

    fn call(&mut self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let (pool, jobs) = (&self.0.pool, &self.0.staged[batch]);
            if jobs.len() <= JOBS_PER_STATEMENT {
                return Ok(awa_model::insert_many(pool, jobs).await?.len());
            }
            let mut transaction = pool.begin().await?;
            let mut enqueued = 0;
            for piece in jobs.chunks(JOBS_PER_STATEMENT) {
                enqueued += awa_model::insert_many(&mut *transaction, piece).await?.len();
            }
            transaction.commit().await?;
            Ok(enqueued)
        })
    }
}
