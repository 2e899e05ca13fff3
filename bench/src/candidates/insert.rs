//! awa's `insert`, one call a job; a batch is a transaction of such calls.

use anyhow::Result;
use awa_model::{InsertOpts, JobArgs};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::awa_pool::AwaPool;
use super::{Call, Candidate, Pace};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

pub struct Insert {
    name: &'static str,
    awa: AwaPool,
    staged: Vec<Vec<(Job, InsertOpts)>>,
}

/// A job as awa takes a single one.
struct Args<'j>(&'j Job);

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.args.serialize(serializer)
    }
}

impl JobArgs for Args<'_> {
    fn kind() -> &'static str {
        "shop_event"
    }

    fn kind_str(&self) -> &'static str {
        self.0.kind
    }

    fn to_args(&self) -> Result<Value, serde_json::Error> {
        Ok(self.0.args.clone())
    }
}

impl Insert {
    pub async fn new(name: &'static str, store: Store, stores: &Stores) -> Result<Self> {
        Ok(Self { name, awa: AwaPool::new(stores, store).await?, staged: Vec::new() })
    }
}

impl Candidate for Insert {
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
        Pace::Single(if self.awa.store == Store::Attached { 10_000 } else { 2_000 })
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        let with_options = |job: Job| {
            let options = job.to_params().opts;
            (job, options)
        };
        self.staged = batches.into_iter().map(|jobs| jobs.into_iter().map(with_options).collect()).collect();
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let jobs = &self.staged[batch];
            if let [(job, options)] = jobs.as_slice() {
                awa_model::insert_with(&self.awa.pool, &Args(job), options.clone()).await?;
                return Ok(1);
            }
            let mut transaction = self.awa.pool.begin().await?;
            for (job, options) in jobs {
                awa_model::insert_with(&mut *transaction, &Args(job), options.clone()).await?;
            }
            transaction.commit().await?;
            Ok(jobs.len())
        })
    }
}
