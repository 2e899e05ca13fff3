//! Prune and promotion on other queues, without producers and beside producers that saturate a lane.
//!
//! A prune is asked for by a row in a slot of the queue ring that nothing else needs, and is over when the row is gone. Promotion is awa's,
//! called as its leader calls it, every 250 ms.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use awa_model::{JobState, QueueStorage, QueueStorageConfig};
use hdrhistogram::Histogram;
use sqlx::postgres::PgPool;
use tokio_postgres::Client;

use super::Plan;
use crate::stores;

/// Producers on one lane, and jobs of each of their calls.
const PRODUCERS: usize = 4;
const BATCH: i32 = 500;

/// awa's own interval.
const PROMOTION: Duration = Duration::from_millis(250);

/// What was measured without and beside the producers, in microseconds.
pub struct Delay {
    pub quiet: Latencies,
    pub saturated: Latencies,
    /// Jobs a second that the producers enqueued.
    pub rate: f64,
    /// Prunes that gave up a lock.
    pub blocked: i64,
}

pub struct Latencies {
    /// From the row to its end.
    pub prune: Histogram<u64>,
    /// From the time when a job is due to the end of its promotion.
    pub promotion: Histogram<u64>,
}

impl Latencies {
    fn new() -> Result<Self> {
        Ok(Self { prune: Histogram::new(3)?, promotion: Histogram::new(3)? })
    }
}

pub async fn measure(socket: &str, database: &str, observer: &Client, plan: Plan) -> Result<Delay> {
    let pool = stores::pool(socket, database).await?;
    let storage = QueueStorage::new(QueueStorageConfig::default())?;
    // Slot 0 stays behind, empty and sealed, and everything else goes into slot 1.
    storage.rotate(&pool).await?;
    let mut producers = Vec::new();
    for _ in 0..PRODUCERS {
        producers.push(stores::connect(socket, database).await?);
    }
    let (mut quiet, mut saturated, mut rates) = (Latencies::new()?, Latencies::new()?, Vec::new());
    for _ in 0..plan.rounds {
        watch(observer, &storage, &pool, plan.loaded, &mut quiet).await?;
        let running = Cell::new(true);
        let load = futures_util::future::join_all(producers.iter().map(|producer| produce(producer, &running)));
        let watched = async {
            let watched = watch(observer, &storage, &pool, plan.loaded, &mut saturated).await;
            running.set(false);
            watched
        };
        let (jobs, watched) = tokio::join!(load, watched);
        watched?;
        let jobs: usize = jobs.into_iter().sum::<Result<usize>>()?;
        rates.push(jobs as f64 / plan.loaded.as_secs_f64());
        observer.batch_execute("TRUNCATE awa.ready_entries, awa.ready_segments; CHECKPOINT").await?;
    }
    let blocked = "SELECT count(*) FROM awa_ingest.maintenance_runs WHERE outcome = 'blocked'";
    let blocked = observer.query_one(blocked, &[]).await?.get(0);
    Ok(Delay { quiet, saturated, rate: rates.iter().sum::<f64>() / rates.len() as f64, blocked })
}

async fn produce(producer: &Client, running: &Cell<bool>) -> Result<usize> {
    let sql = "SELECT count(*) FROM awa.enqueue_batch((SELECT jsonb_agg(jsonb_build_object('kind', 'send_email', 'queue', 'busy',
                   'args', jsonb_build_object('to', 'ada@example.com', 'number', number))) FROM generate_series(1, $1) AS number))";
    let statement = producer.prepare(sql).await?;
    let mut jobs = 0;
    while running.get() {
        producer.query_one(&statement, &[&BATCH]).await?;
        jobs += BATCH as usize;
    }
    Ok(jobs)
}

async fn watch(observer: &Client, storage: &QueueStorage, pool: &PgPool, time: Duration, latencies: &mut Latencies) -> Result<()> {
    let Latencies { prune, promotion } = latencies;
    let (prunes, promotions) = tokio::join!(watch_prunes(observer, time, prune), watch_promotions(storage, pool, time, promotion));
    prunes.and(promotions)
}

async fn watch_prunes(observer: &Client, time: Duration, latencies: &mut Histogram<u64>) -> Result<()> {
    let request = "INSERT INTO awa.ready_tombstones (ready_slot, ready_generation, queue, priority, lane_seq, job_id) VALUES (0, 0, 'other', 2, 1, 1)";
    let (request, waiting) = (observer.prepare(request).await?, observer.prepare("SELECT FROM awa.ready_tombstones_0").await?);
    let begun = Instant::now();
    while begun.elapsed() < time {
        let asked = Instant::now();
        observer.execute(&request, &[]).await?;
        while observer.query_opt(&waiting, &[]).await?.is_some() {
            ensure!(asked.elapsed() < Duration::from_secs(60), "a slot was not pruned within a minute");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        latencies.record(asked.elapsed().as_micros() as u64)?;
    }
    Ok(())
}

async fn watch_promotions(storage: &QueueStorage, pool: &PgPool, time: Duration, latencies: &mut Histogram<u64>) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        sqlx::query("SELECT awa.enqueue('remind', queue => 'other', run_at => clock_timestamp())").execute(pool).await?;
        let due = Instant::now();
        tokio::time::sleep(PROMOTION).await;
        let promoted = storage.promote_due(pool, JobState::Scheduled, 100).await?;
        ensure!(promoted == 1, "{promoted} jobs were promoted where one was due");
        latencies.record(due.elapsed().as_micros() as u64).context("a latency")?;
    }
    Ok(())
}
