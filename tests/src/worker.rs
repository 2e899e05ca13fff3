//! A real awa worker that records what it is given.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use awa::{Client, JobContext, JobError, JobResult, JobRow, QueueConfig, QueueStorageConfig};
use tokio::sync::watch;

use crate::{DEADLINE, Db, within};

/// How a worker is set up. Defaults: one job at a time, so that it sees jobs in the order it claims them, awa's default
/// storage schema, and rings that do not turn during a test, so that rows stay to be looked at.
pub struct WorkerBuilder {
    queues: Vec<String>,
    kinds: Vec<String>,
    max_workers: u32,
    poll_interval: Duration,
    storage: QueueStorageConfig,
    rotate_every: Duration,
}

impl WorkerBuilder {
    /// Works this queue too.
    pub fn queue(mut self, queue: &str) -> Self {
        self.queues.push(queue.to_owned());
        self
    }

    /// Handles this kind too.
    pub fn kind(mut self, kind: &str) -> Self {
        self.kinds.push(kind.to_owned());
        self
    }

    /// Works up to `max_workers` jobs of a queue at the same time.
    pub fn max_workers(mut self, max_workers: u32) -> Self {
        self.max_workers = max_workers;
        self
    }

    /// Looks for jobs this often when nobody wakes it.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Uses another schema or stripe count.
    pub fn storage(mut self, storage: QueueStorageConfig) -> Self {
        self.storage = storage;
        self
    }

    /// Turns and prunes the rings this often.
    pub fn rotate_every(mut self, interval: Duration) -> Self {
        self.rotate_every = interval;
        self
    }

    /// Starts the worker on `db`.
    pub async fn start(self, db: &Db) -> Worker {
        let (seen, _) = watch::channel(0);
        let record = Arc::new(Record { jobs: Mutex::default(), seen });
        let client = self.client(db, &record).await;
        client.start().await.expect("starting the awa worker");
        Worker { client, record }
    }

    async fn client(self, db: &Db, record: &Arc<Record>) -> Client {
        let config = QueueConfig { max_workers: self.max_workers, poll_interval: self.poll_interval, ..QueueConfig::default() };
        let mut builder = Client::builder(db.pool().await)
            .queue_storage(self.storage, self.rotate_every, self.rotate_every)
            .claim_rotate_interval(self.rotate_every)
            .promote_interval(Duration::from_millis(20))
            .leader_election_interval(Duration::from_millis(50));
        for queue in self.queues {
            builder = builder.queue(queue, config.clone());
        }
        for kind in self.kinds {
            // awa wants the kind for the life of the process; a test knows it only at run time.
            let kind: &'static str = kind.leak();
            builder = builder.register_worker(Recorder { kind, record: record.clone() });
        }
        builder.build().expect("building the awa worker")
    }
}

/// A running awa worker.
pub struct Worker {
    client: Client,
    record: Arc<Record>,
}

impl Worker {
    /// Sets up a worker.
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder {
            queues: Vec::new(),
            kinds: Vec::new(),
            max_workers: 1,
            poll_interval: Duration::from_millis(20),
            storage: QueueStorageConfig::default(),
            rotate_every: Duration::from_secs(600),
        }
    }

    /// Waits until `count` jobs were worked.
    ///
    /// # Panics
    /// When that takes longer than [`DEADLINE`], naming the ids that came.
    pub async fn wait_for(&self, count: usize) {
        let mut seen = self.record.seen.subscribe();
        if tokio::time::timeout(DEADLINE, seen.wait_for(|n| *n >= count)).await.is_err() {
            let ids: Vec<i64> = self.seen().iter().map(|job| job.id).collect();
            panic!("waited for {count} jobs, but the worker got {}: {ids:?}", ids.len());
        }
    }

    /// The jobs worked so far, in the order they were started.
    pub fn seen(&self) -> Vec<JobRow> {
        self.record.jobs.lock().expect("no handler panics").clone()
    }

    /// Stops claiming, finishes what is running, and returns all jobs in the order they were started.
    pub async fn stop(self) -> Vec<JobRow> {
        within("stopping the worker", self.client.shutdown(DEADLINE)).await;
        self.client.pool().close().await;
        self.seen()
    }
}

struct Record {
    jobs: Mutex<Vec<JobRow>>,
    seen: watch::Sender<usize>,
}

struct Recorder {
    kind: &'static str,
    record: Arc<Record>,
}

#[async_trait]
impl awa::Worker for Recorder {
    fn kind(&self) -> &'static str {
        self.kind
    }

    async fn perform(&self, ctx: &JobContext) -> Result<JobResult, JobError> {
        self.record.jobs.lock().expect("no handler panics").push(ctx.job.clone());
        self.record.seen.send_modify(|n| *n += 1);
        Ok(JobResult::Completed)
    }
}
