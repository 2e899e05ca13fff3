//! What the candidates that go through awa's client have in common.

use anyhow::Result;
use awa_model::InsertParams;
use sqlx::PgPool;

use super::Pace;
use crate::jobs::Job;
use crate::stores::{Store, Stores};

pub struct AwaPool {
    pub store: Store,
    pub pool: PgPool,
    pub backend: i32,
    pub staged: Vec<Vec<InsertParams>>,
}

impl AwaPool {
    pub async fn new(stores: &Stores, store: Store) -> Result<Self> {
        let pool = stores.pool(store).await?;
        let backend = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await?;
        Ok(Self { store, pool, backend, staged: Vec::new() })
    }

    /// Of the ways through `awa.insert_job_compat`.
    pub fn pace(&self) -> Pace {
        if self.store == Store::Attached { Pace::Steady } else { Pace::Slow }
    }

    pub fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = batches.iter().map(|jobs| jobs.iter().map(Job::to_params).collect()).collect();
    }
}
