//! `awa.enqueue_batch`: the whole batch as one JSON parameter, one result row a job.

use std::error::Error;

use anyhow::Result;
use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Statement};

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

    fn stage(&mut self, batches: &[Vec<Job>]) {
        self.staged = batches.to_vec();
    }

    fn call(&mut self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let json = JsonText(serde_json::to_string(&self.staged[batch])?);
            let rows = self.client.query(&self.statement, &[&json]).await?;
            Ok(rows.iter().filter(|row| row.get::<_, Option<i64>>(1).is_some()).count())
        })
    }
}

/// JSON sent in the text format, as drivers that bind strings send it.
#[derive(Debug)]
struct JsonText(String);

impl ToSql for JsonText {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}
