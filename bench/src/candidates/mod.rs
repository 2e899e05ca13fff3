//! The ways to enqueue that are compared, one a file.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;

use crate::jobs::Job;
use crate::stores::{Offer, Store, Stores};
use rows::Format;

mod awa_pool;
mod batch;
mod copy_floor;
mod copy_ingest;
mod enqueue;
mod enqueue_batch;
mod enqueue_columns;
mod enqueue_csv;
mod insert;
mod insert_job_compat;
mod insert_many;
mod insert_many_copy;
mod insert_plain;
mod params_batch;
mod params_copy;
mod replay;
mod rows;
mod text;

/// A call under way. It yields the number of jobs that the way reported as enqueued.
pub type Call<'a> = Pin<Box<dyn Future<Output = Result<usize>> + 'a>>;
/// The question for a summary under way.
pub type Summing<'a> = Pin<Box<dyn Future<Output = Result<Option<Summary>>> + 'a>>;

/// What the server says of a candidate's last call.
pub struct Summary {
    /// From the first lane lock to the end of the statement, the commit not included.
    pub lane_hold: Duration,
    /// The whole statement, the commit not included.
    pub elapsed: Duration,
}

/// One way to enqueue a batch of jobs, on a connection of its own.
pub trait Candidate {
    /// The name in the report and for `--only`.
    fn name(&self) -> &'static str;

    /// The process that works for this candidate in the server.
    fn backend(&self) -> i32;

    /// All of them, where several producers work at once.
    fn backends(&self) -> Vec<i32> {
        vec![self.backend()]
    }

    fn store(&self) -> Store {
        Store::Awa
    }

    fn pace(&self) -> Pace {
        Pace::Fast
    }

    /// Takes over the batches of the next block, in the form the way starts from. Not timed.
    fn stage(&mut self, batches: Vec<Vec<Job>>);

    /// Makes the bytes to send of what is staged, in the cases that leave this out of the timing.
    fn render(&mut self) {}

    /// Enqueues those staged jobs that are there already when the others come. Not timed.
    fn before(&self) -> Call<'_> {
        Box::pin(async { Ok(0) })
    }

    /// Enqueues and commits one of the staged batches. Timed.
    fn call(&self, batch: usize) -> Call<'_>;

    /// Asks the server about the call that was just made, where it keeps a summary. Not timed.
    fn summary(&self) -> Summing<'_> {
        Box::pin(async { Ok(None) })
    }
}

/// How much of a candidate a round can afford.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Fast,
    /// Sends bytes that could lie ready: also takes part in the cases in which they do, up to a million jobs a call.
    Streaming,
    /// Enqueues job by job whatever the batch: fewer jobs, and large batches only in every third round.
    Slow,
    /// Does so at a multiple of that speed.
    Steady,
    /// Calls a function for each job: small batches only, and this many jobs.
    Single(usize),
    /// Several producers at once, for replays only.
    Producers {
        count: usize,
        calls_each: usize,
    },
}

impl Pace {
    pub fn producers(self) -> usize {
        if let Self::Producers { count, .. } = self { count } else { 1 }
    }
}

pub const INSERT_MANY: &str = "insert_many";
pub const INSERT_MANY_ATTACHED: &str = "insert_many_attached";
pub const INSERT_MANY_COPY: &str = "insert_many_copy";
pub const INSERT_MANY_COPY_ATTACHED: &str = "insert_many_copy_attached";
pub const PARAMS_BATCH: &str = "enqueue_params_batch";
pub const PARAMS_COPY: &str = "enqueue_params_copy";
pub const INSERT: &str = "insert";
pub const INSERT_ATTACHED: &str = "insert_attached";
pub const INSERT_PLAIN: &str = "insert_plain";
pub const INSERT_JOB_COMPAT: &str = "insert_job_compat";
pub const ENQUEUE: &str = "enqueue";
pub const ENQUEUE_BATCH: &str = "enqueue_batch";
pub const ENQUEUE_BATCH_EMBEDDED: &str = "enqueue_batch_embedded";
pub const ENQUEUE_COLUMNS: &str = "enqueue_columns";
pub const COPY_CSV: &str = "copy_csv";
pub const COPY_BINARY: &str = "copy_binary";
pub const COPY_CSV_EMBEDDED: &str = "copy_csv_embedded";
pub const COPY_BINARY_EMBEDDED: &str = "copy_binary_embedded";
pub const ENQUEUE_CSV: &str = "enqueue_csv";
pub const FLOOR: &str = "floor";
pub const FLOOR_BINARY: &str = "floor_binary";
pub const REPLAY_COPY_4: &str = "replay_insert_many_copy_4";
pub const REPLAY_COPY_16: &str = "replay_insert_many_copy_16";
pub const REPLAY_SKIP_16: &str = "replay_skip_16";

/// Every name, in the report's order: this is also the order in which candidates are created.
pub const NAMES: [&str; 24] = [
    INSERT_MANY,
    INSERT_MANY_ATTACHED,
    INSERT_MANY_COPY,
    INSERT_MANY_COPY_ATTACHED,
    PARAMS_BATCH,
    PARAMS_COPY,
    INSERT,
    INSERT_ATTACHED,
    INSERT_PLAIN,
    INSERT_JOB_COMPAT,
    ENQUEUE,
    ENQUEUE_BATCH,
    ENQUEUE_BATCH_EMBEDDED,
    ENQUEUE_COLUMNS,
    COPY_CSV,
    COPY_BINARY,
    COPY_CSV_EMBEDDED,
    COPY_BINARY_EMBEDDED,
    ENQUEUE_CSV,
    FLOOR,
    FLOOR_BINARY,
    REPLAY_COPY_4,
    REPLAY_COPY_16,
    REPLAY_SKIP_16,
];

/// What the candidate called `name` needs to find in the server.
pub fn need(name: &str) -> Offer {
    match name {
        ENQUEUE | ENQUEUE_BATCH | ENQUEUE_BATCH_EMBEDDED | ENQUEUE_COLUMNS => Offer::Functions,
        INSERT_MANY_ATTACHED | INSERT_MANY_COPY_ATTACHED | INSERT_ATTACHED | REPLAY_SKIP_16 => Offer::Replacement,
        COPY_CSV | COPY_BINARY | COPY_CSV_EMBEDDED | COPY_BINARY_EMBEDDED | ENQUEUE_CSV => Offer::ForeignTables,
        _ => Offer::Nothing,
    }
}

/// The floor that COPYs in the same format as the candidate called `name`.
pub fn floor_of(name: &str) -> &'static str {
    if matches!(name, COPY_BINARY | COPY_BINARY_EMBEDDED) { FLOOR_BINARY } else { FLOOR }
}

/// Connects the candidate called `name`, one of [`NAMES`].
pub async fn create(name: &str, stores: &Stores) -> Result<Box<dyn Candidate>> {
    let insert_many = |name, store| insert_many::InsertMany::new(name, store, stores);
    let insert_many_copy = |name, store| insert_many_copy::InsertManyCopy::new(name, store, stores);
    let copy = |name, store, format| copy_ingest::CopyIngest::new(name, store, format, stores);
    Ok(match name {
        INSERT_MANY => Box::new(insert_many(INSERT_MANY, Store::Awa).await?),
        INSERT_MANY_ATTACHED => Box::new(insert_many(INSERT_MANY_ATTACHED, Store::Attached).await?),
        INSERT_MANY_COPY => Box::new(insert_many_copy(INSERT_MANY_COPY, Store::Awa).await?),
        INSERT_MANY_COPY_ATTACHED => Box::new(insert_many_copy(INSERT_MANY_COPY_ATTACHED, Store::Attached).await?),
        PARAMS_BATCH => Box::new(params_batch::ParamsBatch::new(stores).await?),
        PARAMS_COPY => Box::new(params_copy::ParamsCopy::new(stores).await?),
        INSERT => Box::new(insert::Insert::new(INSERT, Store::Awa, stores).await?),
        INSERT_ATTACHED => Box::new(insert::Insert::new(INSERT_ATTACHED, Store::Attached, stores).await?),
        INSERT_PLAIN => Box::new(insert_plain::InsertPlain::new(stores).await?),
        INSERT_JOB_COMPAT => Box::new(insert_job_compat::InsertJobCompat::new(stores).await?),
        ENQUEUE => Box::new(enqueue::Enqueue::new(stores).await?),
        ENQUEUE_BATCH => Box::new(enqueue_batch::EnqueueBatch::attached(stores).await?),
        ENQUEUE_BATCH_EMBEDDED => Box::new(enqueue_batch::EnqueueBatch::embedded(stores).await?),
        ENQUEUE_COLUMNS => Box::new(enqueue_columns::EnqueueColumns::new(stores).await?),
        COPY_CSV => Box::new(copy(COPY_CSV, Store::Awa, Format::Csv).await?),
        COPY_BINARY => Box::new(copy(COPY_BINARY, Store::Awa, Format::Binary).await?),
        COPY_CSV_EMBEDDED => Box::new(copy(COPY_CSV_EMBEDDED, Store::Embedded, Format::Csv).await?),
        COPY_BINARY_EMBEDDED => Box::new(copy(COPY_BINARY_EMBEDDED, Store::Embedded, Format::Binary).await?),
        ENQUEUE_CSV => Box::new(enqueue_csv::EnqueueCsv::new(stores).await?),
        FLOOR => Box::new(copy_floor::CopyFloor::new(FLOOR, Format::Csv, stores).await?),
        FLOOR_BINARY => Box::new(copy_floor::CopyFloor::new(FLOOR_BINARY, Format::Binary, stores).await?),
        REPLAY_COPY_4 => Box::new(replay::Replay::copy(REPLAY_COPY_4, 4, stores).await?),
        REPLAY_COPY_16 => Box::new(replay::Replay::copy(REPLAY_COPY_16, 16, stores).await?),
        REPLAY_SKIP_16 => Box::new(replay::Replay::skip(REPLAY_SKIP_16, 16, stores).await?),
        _ => unreachable!("no candidate is called {name}"),
    })
}

/// Starts a transaction where a batch has more than one call; a single call commits by itself.
async fn begin(client: &tokio_postgres::Client, calls: usize) -> Result<()> {
    if calls > 1 {
        client.batch_execute("BEGIN").await?;
    }
    Ok(())
}

/// Ends what [`begin`] started.
async fn commit(client: &tokio_postgres::Client, calls: usize) -> Result<()> {
    if calls > 1 {
        client.batch_execute("COMMIT").await?;
    }
    Ok(())
}

/// The process id of the connection's backend.
async fn backend_of(client: &tokio_postgres::Client) -> Result<i32> {
    Ok(client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0))
}
