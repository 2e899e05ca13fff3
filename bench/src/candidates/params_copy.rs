//! awa's `QueueStorage::enqueue_params_copy`: finished rows by COPY, its fastest way.

use anyhow::Result;
use awa_model::QueueStorage;

use super::awa_pool::AwaPool;
use super::{Call, Candidate};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

pub struct ParamsCopy {
    awa: AwaPool,
    storage: QueueStorage,
}

impl ParamsCopy {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let storage = QueueStorage::from_existing_schema("awa")?;
        Ok(Self { awa: AwaPool::new(stores, Store::Awa).await?, storage })
    }
}

impl Candidate for ParamsCopy {
    fn name(&self) -> &'static str {
        super::PARAMS_COPY
    }

    fn backend(&self) -> i32 {
        self.awa.backend
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.awa.stage(batches);
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let (pool, jobs) = (&self.awa.pool, &self.awa.staged[batch]);
            Ok(self.storage.enqueue_params_copy(pool, jobs).await?)
        })
    }
}
