//! What the candidates that go through awa's client have in common.

use anyhow::Result;
use awa_model::InsertParams;
use sqlx::PgPool;

use crate::jobs::Job;
use crate::stores::Stores;

pub struct AwaPool {
    pub pool: PgPool,
    pub backend: i32,
    pub staged: Vec<Vec<InsertParams>>,
}

impl AwaPool {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let pool = stores.pool().await?;
        let backend = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&pool).await?;
        Ok(Self { pool, backend, staged: Vec::new() })
    }

    pub fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = batches.iter().map(|jobs| jobs.iter().map(Job::to_params).collect()).collect();
    }
}
