//! The floor: COPY of finished rows into one partition with awa's indexes. Nothing else is done for a job.

use anyhow::Result;
use bytes::Bytes;
use tokio_postgres::{Client, Statement};

use super::rows::{Format, Rows, Time, copy_bytes};
use super::{Call, Candidate, Pace, backend_of};
use crate::jobs::{Job, UNIQUE_STATES};
use crate::stores::{Store, Stores};

const SQL: &str = "COPY bench_floor.ready_entries_0 (ready_slot, ready_generation, job_id, kind, queue,
    args, priority, attempt, run_lease, max_attempts, lane_seq, enqueue_shard, run_at, attempted_at,
    created_at, unique_key, unique_states, payload) FROM STDIN";
const COLUMNS: i16 = 18;
const CREATED: Time = Time { text: "2026-01-05 08:30:00.123456+00", micros: 820_917_000_123_456 };

pub struct CopyFloor {
    name: &'static str,
    format: Format,
    client: Client,
    statement: Statement,
    backend: i32,
    /// Job ids and lane positions go on over all rounds, as they would in a queue.
    next_id: i64,
    staged: Vec<Bytes>,
}

impl CopyFloor {
    pub async fn new(name: &'static str, format: Format, stores: &Stores) -> Result<Self> {
        let client = stores.connect(Store::Floor).await?;
        let word = if format == Format::Csv { "csv" } else { "binary" };
        let statement = client.prepare(&format!("{SQL} (FORMAT {word})")).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { name, format, client, statement, backend, next_id: 1, staged: Vec::new() })
    }

    fn finished_rows(&mut self, jobs: &[Job]) -> Bytes {
        let mut rows = Rows::new(self.format, jobs.len() * 320);
        for job in jobs {
            write_finished(&mut rows, job, self.next_id);
            self.next_id += 1;
        }
        rows.finish()
    }
}

impl Candidate for CopyFloor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn store(&self) -> Store {
        Store::Floor
    }

    fn pace(&self) -> Pace {
        Pace::Streaming
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        self.staged = batches.into_iter().map(|jobs| self.finished_rows(&jobs)).collect();
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move { copy_bytes(&self.client, &self.statement, self.staged[batch].clone()).await })
    }
}

fn write_finished(rows: &mut Rows, job: &Job, id: i64) {
    rows.begin(COLUMNS);
    rows.number4(0);
    rows.number8(0);
    rows.number8(id);
    rows.text(job.kind);
    rows.text(&job.queue);
    rows.json(&job.args);
    rows.number2(2);
    rows.number2(0);
    rows.number8(0);
    rows.number2(25);
    rows.number8(id);
    rows.number2(0);
    rows.time(&CREATED);
    rows.null();
    rows.time(&CREATED);
    if job.unique {
        rows.bytes(&job.unique_key());
        rows.text(UNIQUE_STATES);
    } else {
        rows.null();
        rows.null();
    }
    rows.null();
    rows.end();
}
