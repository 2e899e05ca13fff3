//! The ways to enqueue that are compared, one a file.

use std::future::Future;
use std::pin::Pin;

use anyhow::Result;

use crate::jobs::Job;
use crate::stores::{Store, Stores};

mod awa_pool;
mod copy_floor;
mod enqueue;
mod enqueue_batch;
mod enqueue_columns;
mod insert_job_compat;
mod insert_many;
mod insert_many_copy;
mod params_batch;
mod params_copy;

/// A call under way. It yields the number of jobs that the way reported as enqueued.
pub type Call<'a> = Pin<Box<dyn Future<Output = Result<usize>> + 'a>>;

/// One way to enqueue a batch of jobs, on a connection of its own.
pub trait Candidate {
    /// The name in the report and for `--only`.
    fn name(&self) -> &'static str;

    /// The process that works for this candidate in the server.
    fn backend(&self) -> i32;

    fn store(&self) -> Store {
        Store::Awa
    }

    fn pace(&self) -> Pace {
        Pace::Fast
    }

    /// Takes over the batches of the next block, in the form the way starts from. Not timed.
    fn stage(&mut self, batches: &[Vec<Job>]);

    /// Enqueues and commits one of the staged batches. Timed.
    fn call(&mut self, batch: usize) -> Call<'_>;
}

/// How much of a candidate a round can afford.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Fast,
    /// Enqueues job by job whatever the batch: fewer jobs, and only in every third round.
    Slow,
    /// Calls a function for each job: small batches only, and fewer jobs.
    Single,
}

pub const INSERT_MANY: &str = "insert_many";
pub const INSERT_MANY_COPY: &str = "insert_many_copy";
pub const PARAMS_BATCH: &str = "enqueue_params_batch";
pub const PARAMS_COPY: &str = "enqueue_params_copy";
pub const INSERT_JOB_COMPAT: &str = "insert_job_compat";
pub const ENQUEUE: &str = "enqueue";
pub const ENQUEUE_BATCH: &str = "enqueue_batch";
pub const ENQUEUE_BATCH_EMBEDDED: &str = "enqueue_batch_embedded";
pub const ENQUEUE_COLUMNS: &str = "enqueue_columns";
pub const FLOOR: &str = "floor";

/// Every name, in the report's order: this is also the order in which candidates are created.
pub const NAMES: [&str; 10] = [
    INSERT_MANY,
    INSERT_MANY_COPY,
    PARAMS_BATCH,
    PARAMS_COPY,
    INSERT_JOB_COMPAT,
    ENQUEUE,
    ENQUEUE_BATCH,
    ENQUEUE_BATCH_EMBEDDED,
    ENQUEUE_COLUMNS,
    FLOOR,
];

/// Those of the names that need the extension in the server.
pub fn needs_extension(name: &str) -> bool {
    matches!(name, ENQUEUE | ENQUEUE_BATCH | ENQUEUE_BATCH_EMBEDDED | ENQUEUE_COLUMNS)
}

/// Connects the candidate called `name`, one of [`NAMES`].
pub async fn create(name: &str, stores: &Stores) -> Result<Box<dyn Candidate>> {
    Ok(match name {
        INSERT_MANY => Box::new(insert_many::InsertMany::new(stores).await?),
        INSERT_MANY_COPY => Box::new(insert_many_copy::InsertManyCopy::new(stores).await?),
        PARAMS_BATCH => Box::new(params_batch::ParamsBatch::new(stores).await?),
        PARAMS_COPY => Box::new(params_copy::ParamsCopy::new(stores).await?),
        INSERT_JOB_COMPAT => Box::new(insert_job_compat::InsertJobCompat::new(stores).await?),
        ENQUEUE => Box::new(enqueue::Enqueue::new(stores).await?),
        ENQUEUE_BATCH => Box::new(enqueue_batch::EnqueueBatch::attached(stores).await?),
        ENQUEUE_BATCH_EMBEDDED => Box::new(enqueue_batch::EnqueueBatch::embedded(stores).await?),
        ENQUEUE_COLUMNS => Box::new(enqueue_columns::EnqueueColumns::new(stores).await?),
        FLOOR => Box::new(copy_floor::CopyFloor::new(stores).await?),
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
