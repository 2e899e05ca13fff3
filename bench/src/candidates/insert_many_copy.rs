//! awa's `insert_many_copy`: COPY into a staging table, then `awa.insert_job_compat` for each row.

use anyhow::Result;

use super::awa_pool::AwaPool;
use super::{Call, Candidate, Pace};
use crate::jobs::Job;
use crate::stores::Stores;

pub struct InsertManyCopy(AwaPool);

impl InsertManyCopy {
    pub async fn new(stores: &Stores) -> Result<Self> {
        Ok(Self(AwaPool::new(stores).await?))
    }
}

impl Candidate for InsertManyCopy {
    fn name(&self) -> &'static str {
        super::INSERT_MANY_COPY
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
            Ok(awa_model::insert_many_copy_from_pool(pool, jobs).await?.len())
        })
    }
}
