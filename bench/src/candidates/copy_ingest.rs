//! COPY into `awa.ingest`, in CSV or in the binary format, of the columns that an application would send.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::{Client, Statement};

use super::batch::Batch;
use super::rows::{Format, Rows, copy_bytes, copy_jobs, job_columns, write_job};
use super::{Call, Candidate, Pace, Summary, Summing, backend_of};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

const SUMMARY: &str = "SELECT extract(epoch FROM lane_hold)::float8, extract(epoch FROM elapsed)::float8
    FROM awa.last_ingest_summary()";

pub struct CopyIngest {
    name: &'static str,
    store: Store,
    format: Format,
    client: Client,
    /// Without the columns of unique keys, and with them.
    statements: [Statement; 2],
    summary: Statement,
    backend: i32,
    unique: bool,
    staged: Vec<Batch>,
}

impl CopyIngest {
    pub async fn new(name: &'static str, store: Store, format: Format, stores: &Stores) -> Result<Self> {
        let client = stores.connect(store).await?;
        let word = if format == Format::Csv { "csv" } else { "binary" };
        let sql = |unique| format!("COPY awa.ingest ({}) FROM STDIN (FORMAT {word})", job_columns(unique));
        let statements = [client.prepare(&sql(false)).await?, client.prepare(&sql(true)).await?];
        let summary = client.prepare(SUMMARY).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { name, store, format, client, statements, summary, backend, unique: false, staged: Vec::new() })
    }
}

impl Candidate for CopyIngest {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn store(&self) -> Store {
        self.store
    }

    fn pace(&self) -> Pace {
        Pace::Streaming
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.unique = batches.iter().flatten().any(|job| job.unique);
        self.staged = Batch::of(batches);
    }

    fn render(&mut self) {
        let format = self.format;
        Batch::render(&mut self.staged, |jobs| {
            let mut rows = Rows::new(format, jobs.len() * 256);
            jobs.iter().for_each(|job| write_job(&mut rows, job));
            rows.finish()
        });
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let statement = &self.statements[usize::from(self.unique)];
            match &self.staged[batch] {
                Batch::Jobs(jobs) => copy_jobs(&self.client, statement, self.format, jobs).await,
                Batch::Ready(bytes) => copy_bytes(&self.client, statement, bytes.clone()).await,
            }
        })
    }

    fn summary(&self) -> Summing<'_> {
        Box::pin(async move {
            let row = self.client.query_one(&self.summary, &[]).await?;
            let duration = |index| Ok::<_, anyhow::Error>(Duration::try_from_secs_f64(row.try_get(index)?)?);
            Ok(Some(Summary { lane_hold: duration(0)?, elapsed: duration(1)? }))
        })
    }
}
