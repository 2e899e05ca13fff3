//! `awa.enqueue_batch`: the whole batch as one JSON parameter, one result row a job.

use anyhow::Result;
use tokio_postgres::{Client, Statement};

use super::text::Text;
use super::{Call, Candidate, backend_of};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

const SQL: &str = "SELECT ord, job_id, conflicts_with FROM awa.enqueue_batch($1)";

pub struct EnqueueBatch {
    name: &'static str,
    store: Store,
    client: Client,
    statement: Statement,
    backend: i32,
    staged: Vec<Vec<Job>>,
}

impl EnqueueBatch {
    pub async fn attached(stores: &Stores) -> Result<Self> {
        Self::new(super::ENQUEUE_BATCH, Store::Awa, stores).await
    }

    pub async fn embedded(stores: &Stores) -> Result<Self> {
        Self::new(super::ENQUEUE_BATCH_EMBEDDED, Store::Embedded, stores).await
    }

    async fn new(name: &'static str, store: Store, stores: &Stores) -> Result<Self> {
        let client = stores.connect(store).await?;
        let statement = client.prepare(SQL).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { name, store, client, statement, backend, staged: Vec::new() })
    }
}

impl Candidate for EnqueueBatch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn store(&self) -> Store {
        self.store
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = batches;
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let json = Text(serde_json::to_vec(&self.staged[batch])?.into());
            let rows = self.client.query(&self.statement, &[&json]).await?;
            Ok(rows.iter().filter(|row| row.get::<_, Option<i64>>(1).is_some()).count())
        })
    }
}
