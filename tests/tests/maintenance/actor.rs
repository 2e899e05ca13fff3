//! A real awa worker whose jobs say how they end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use awa::{Client, JobContext, JobError, JobResult, JobRow, QueueConfig, QueueStorageConfig};
use awa_ingest_tests::{DEADLINE, Db, within};
use tokio::sync::watch;

/// The kind of all jobs here; `args.end` says how they end: `complete`, `fail`, `cancel`, `hold` (not before the actor is stopped), or
/// `lease` (the same, with a row in `leases`).
pub const KIND: &str = "act";

/// A queue whose claims are rows of their own, since its jobs have a deadline.
pub const ROWS: &str = "rows";
/// A queue whose claims are kept in batches.
pub const BATCHES: &str = "batches";

/// How an actor is set up.
pub struct Setup {
    /// Where jobs are.
    pub storage: QueueStorageConfig,
    /// How often awa turns and prunes the rings.
    pub rotate_every: Duration,
    /// Jobs of a queue at the same time.
    pub max_workers: u32,
}

impl Default for Setup {
    /// Rings that do not turn by themselves.
    fn default() -> Self {
        Self { storage: QueueStorageConfig::default(), rotate_every: Duration::from_secs(600), max_workers: 4 }
    }
}

/// A running worker of both queues.
pub struct Actor {
    client: Client,
    record: Arc<Record>,
}

struct Record {
    jobs: Mutex<Vec<JobRow>>,
    started: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Actor {
    /// Starts one on `db`.
    pub async fn start(db: &Db, setup: Setup) -> Self {
        let record = Arc::new(Record { jobs: Mutex::default(), started: watch::channel(0).0, released: watch::channel(false).0 });
        let poll_interval = Duration::from_millis(20);
        let rows = QueueConfig { max_workers: setup.max_workers, poll_interval, ..QueueConfig::default() };
        let batches = QueueConfig { deadline_duration: Duration::ZERO, ..rows.clone() };
        let client = Client::builder(db.pool().await)
            .queue_storage(setup.storage, setup.rotate_every, setup.rotate_every)
            .claim_rotate_interval(setup.rotate_every)
            .promote_interval(Duration::from_millis(20))
            .leader_election_interval(Duration::from_millis(50))
            .queue(ROWS, rows)
            .queue(BATCHES, batches)
            .register_worker(Role(record.clone()))
            .build()
            .expect("building the awa worker");
        client.start().await.expect("starting the awa worker");
        Self { client, record }
    }

    /// How many jobs were started.
    pub fn started(&self) -> usize {
        *self.record.started.borrow()
    }

    /// Waits until `count` jobs were started.
    pub async fn wait_for(&self, count: usize) {
        let mut started = self.record.started.subscribe();
        let wait = tokio::time::timeout(DEADLINE, started.wait_for(|n| *n >= count)).await.is_ok();
        assert!(wait, "waited for {count} jobs, but the worker got {}", self.started());
    }

    /// Lets go of the jobs that are held, ends the worker when all that is running is over, and returns the jobs as they were started.
    pub async fn stop(self) -> Vec<JobRow> {
        self.record.released.send_replace(true);
        within("stopping the worker", self.client.shutdown(DEADLINE)).await;
        self.client.pool().close().await;
        let jobs = self.record.jobs.lock().expect("no handler panics");
        jobs.clone()
    }
}

struct Role(Arc<Record>);

#[async_trait]
impl awa::Worker for Role {
    fn kind(&self) -> &'static str {
        KIND
    }

    async fn perform(&self, ctx: &JobContext) -> Result<JobResult, JobError> {
        let end = ctx.job.args["end"].as_str().unwrap_or("complete");
        if end == "lease" {
            // What has to be written down about a running job takes a lease.
            ctx.register_callback(Duration::from_secs(600)).await.expect("a callback");
        }
        self.0.jobs.lock().expect("no handler panics").push(ctx.job.clone());
        self.0.started.send_modify(|n| *n += 1);
        match end {
            "fail" => Err(JobError::Terminal("as the job says".into())),
            "cancel" => Ok(JobResult::Cancel("as the job says".into())),
            "hold" | "lease" => {
                self.0.released.subscribe().wait_for(|released| *released).await.expect("the actor is there");
                Ok(JobResult::Completed)
            }
            _ => Ok(JobResult::Completed),
        }
    }
}
