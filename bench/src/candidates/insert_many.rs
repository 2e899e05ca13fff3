//! awa's `insert_many`: one statement over `awa.insert_job_compat`, twelve parameters a job.

use anyhow::Result;

use super::awa_pool::AwaPool;
use super::{Call, Candidate, Pace};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

/// A statement takes at most 65,535 parameters: larger batches go in pieces of this, in one transaction.
const JOBS_PER_STATEMENT: usize = 5_000;

pub struct InsertMany {
    name: &'static str,
    awa: AwaPool,
}

impl InsertMany {
    pub async fn new(name: &'static str, store: Store, stores: &Stores) -> Result<Self> {
        Ok(Self { name, awa: AwaPool::new(stores, store).await? })
    }
}

impl Candidate for InsertMany {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backend(&self) -> i32 {
        self.awa.backend
    }

    fn store(&self) -> Store {
        self.awa.store
    }

    fn pace(&self) -> Pace {
        self.awa.pace()
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.awa.stage(batches);
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let (pool, jobs) = (&self.awa.pool, &self.awa.staged[batch]);
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
