//! awa's `insert_many_copy`: COPY into a staging table, then `awa.insert_job_compat` for each row.

use anyhow::Result;

use super::awa_pool::AwaPool;
use super::{Call, Candidate, Pace};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

pub struct InsertManyCopy {
    name: &'static str,
    awa: AwaPool,
}

impl InsertManyCopy {
    pub async fn new(name: &'static str, store: Store, stores: &Stores) -> Result<Self> {
        Ok(Self { name, awa: AwaPool::new(stores, store).await? })
    }
}

impl Candidate for InsertManyCopy {
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
            Ok(awa_model::insert_many_copy_from_pool(pool, jobs).await?.len())
        })
    }
}
