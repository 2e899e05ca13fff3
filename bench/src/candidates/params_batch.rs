//! awa's `QueueStorage::enqueue_params_batch`: finished rows by one INSERT, eighteen parameters a job.

use anyhow::Result;
use awa_model::QueueStorage;

use super::awa_pool::AwaPool;
use super::{Call, Candidate};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

/// A statement takes at most 65,535 parameters, and awa does not split: larger batches are several calls.
const JOBS_PER_CALL: usize = 2_500;

pub struct ParamsBatch {
    awa: AwaPool,
    storage: QueueStorage,
}

impl ParamsBatch {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let storage = QueueStorage::from_existing_schema("awa")?;
        Ok(Self { awa: AwaPool::new(stores, Store::Awa).await?, storage })
    }
}

impl Candidate for ParamsBatch {
    fn name(&self) -> &'static str {
        super::PARAMS_BATCH
    }

    fn backend(&self) -> i32 {
        self.awa.backend
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.awa.stage(batches);
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let mut enqueued = 0;
            for piece in self.awa.staged[batch].chunks(JOBS_PER_CALL) {
                enqueued += self.storage.enqueue_params_batch(&self.awa.pool, piece).await?;
            }
            Ok(enqueued)
        })
    }
}
