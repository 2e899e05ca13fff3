//! The floor: COPY of finished rows into one partition with awa's indexes. Nothing else is done for a job.

use std::fmt::Write as _;
use std::pin::pin;

use anyhow::Result;
use awa_model::unique::compute_unique_key;
use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_postgres::{Client, Statement};

use super::{Call, Candidate, backend_of};
use crate::jobs::Job;
use crate::stores::{Store, Stores};

const SQL: &str = "COPY bench_floor.ready_entries_0 (ready_slot, ready_generation, job_id, kind, queue,
    args, priority, attempt, run_lease, max_attempts, lane_seq, enqueue_shard, run_at, attempted_at,
    created_at, unique_key, unique_states, payload) FROM STDIN (FORMAT csv)";
/// Pieces of this size let the server read while the client still sends.
const CHUNK: usize = 64 * 1024;

pub struct CopyFloor {
    client: Client,
    statement: Statement,
    backend: i32,
    /// Job ids and lane positions go on over all rounds, as they would in a queue.
    next_id: i64,
    staged: Vec<Bytes>,
}

impl CopyFloor {
    pub async fn new(stores: &Stores) -> Result<Self> {
        let client = stores.connect(Store::Floor).await?;
        let statement = client.prepare(SQL).await?;
        let backend = backend_of(&client).await?;
        Ok(Self { client, statement, backend, next_id: 1, staged: Vec::new() })
    }

    fn render(&mut self, jobs: &[Job]) -> Bytes {
        let mut csv = String::with_capacity(jobs.len() * 320);
        for job in jobs {
            write_row(&mut csv, job, self.next_id);
            self.next_id += 1;
        }
        Bytes::from(csv)
    }
}

impl Candidate for CopyFloor {
    fn name(&self) -> &'static str {
        super::FLOOR
    }

    fn backend(&self) -> i32 {
        self.backend
    }

    fn store(&self) -> Store {
        Store::Floor
    }

    fn stage(&mut self, batches: &[Vec<Job>]) {
        self.staged = batches.iter().map(|jobs| self.render(jobs)).collect();
    }

    fn call(&mut self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let mut rest = self.staged[batch].clone();
            let mut sink = pin!(self.client.copy_in(&self.statement).await?);
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(CHUNK));
                sink.feed(piece).await?;
            }
            Ok(sink.finish().await? as usize)
        })
    }
}

fn write_row(csv: &mut String, job: &Job, id: i64) {
    let args = job.args.to_string().replace('"', "\"\"");
    let (key, states) = if job.unique {
        let key = compute_unique_key(job.kind, None, Some(&job.args), None);
        (hex_bytes(&key), "11111000")
    } else {
        (String::new(), "")
    };
    writeln!(
        csv,
        "0,0,{id},{kind},{queue},\"{args}\",2,0,0,25,{id},0,\
         2026-01-05 08:30:00.123456+00,,2026-01-05 08:30:00.123456+00,{key},{states},",
        kind = job.kind,
        queue = job.queue,
    )
    .expect("a string takes every write");
}

fn hex_bytes(bytes: &[u8]) -> String {
    bytes.iter().fold("\\x".to_owned(), |hex, byte| hex + &format!("{byte:02x}"))
}
