//! `awa.enqueue_csv`: the whole batch as one CSV text with a header, one result row a job.

use std::pin::pin;

use anyhow::Result;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use tokio_postgres::{Client, Statement};

use super::batch::Batch;
use super::rows::{Format, Rows, job_columns, write_job};
use super::text::Text;
use super::{Call, Candidate, Pace, backend_of};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

const SQL: &str = "SELECT ord, job_id, conflicts_with FROM awa.enqueue_csv($1::text)";

pub struct EnqueueCsv {
    client: Client,
    statement: Statement,
    backend: i32,
    staged: Vec<Batch>,
}

impl EnqueueCsv {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let client = stores.connect(Store::Awa).await?;
        let statement = client.prepare(SQL).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { client, statement, backend, staged: Vec::new() })
    }
}

impl Candidate for EnqueueCsv {
    fn name(&self) -> &'static str {
        super::ENQUEUE_CSV
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn pace(&self) -> Pace {
        Pace::Streaming
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = Batch::of(batches);
    }

    fn render(&mut self) {
        Batch::render(&mut self.staged, csv);
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let csv = match &self.staged[batch] {
                Batch::Jobs(jobs) => csv(jobs),
                Batch::Ready(bytes) => bytes.clone(),
            };
            let mut rows = pin!(self.client.query_raw(&self.statement, [Text(csv)]).await?);
            let mut enqueued = 0;
            while let Some(row) = rows.try_next().await? {
                enqueued += usize::from(row.get::<_, Option<i64>>(1).is_some());
            }
            Ok(enqueued)
        })
    }
}

fn csv(jobs: &[Job]) -> Bytes {
    let mut rows = Rows::new(Format::Csv, jobs.len() * 256);
    rows.header(job_columns(jobs.first().is_some_and(|job| job.unique)));
    jobs.iter().for_each(|job| write_job(&mut rows, job));
    rows.finish()
}
