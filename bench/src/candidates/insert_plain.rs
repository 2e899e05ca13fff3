//! The floor of single calls: one plain INSERT a job, of the finished row, by the client that awa's `insert` uses; a batch is a transaction
//! of such statements.

use anyhow::Result;
use sqlx::PgConnection;

use super::awa_pool::AwaPool;
use super::{Call, Candidate, Pace};
use crate::jobs::{Job, UNIQUE_STATES};
use crate::stores::{Store, Stores};

const SQL: &str = "INSERT INTO bench_floor.ready_entries_0 (ready_slot, ready_generation, job_id, kind, queue,
        args, priority, attempt, run_lease, max_attempts, lane_seq, enqueue_shard, run_at, attempted_at,
        created_at, unique_key, unique_states, payload)
    VALUES (0, 0, $1, $2, $3, $4, $5, 0, 0, $6, $1, 0, now(), NULL, now(), $7, $8, NULL)";

pub struct InsertPlain {
    awa: AwaPool,
    /// Job ids and lane positions go on over all rounds.
    next_id: i64,
    staged: Vec<Vec<(i64, Job)>>,
}

impl InsertPlain {
    pub async fn new(stores: &Stores) -> Result<Self> {
        Ok(Self { awa: AwaPool::new(stores, Store::Floor).await?, next_id: 1, staged: Vec::new() })
    }
}

impl Candidate for InsertPlain {
    fn name(&self) -> &'static str {
        super::INSERT_PLAIN
    }

    fn backend(&self) -> i32 {
        self.awa.backend
    }

    fn store(&self) -> Store {
        self.awa.store
    }

    fn pace(&self) -> Pace {
        Pace::Single(10_000)
    }

    fn stage(&mut self, batches: Vec<Vec<Job>>) {
        let next_id = &mut self.next_id;
        let mut numbered = |job| {
            *next_id += 1;
            (*next_id, job)
        };
        self.staged = batches.into_iter().map(|jobs| jobs.into_iter().map(&mut numbered).collect()).collect();
    }

    fn call(&self, batch: usize) -> Call<'_> {
        Box::pin(async move {
            let jobs = &self.staged[batch];
            if let [(id, job)] = jobs.as_slice() {
                insert(&mut *self.awa.pool.acquire().await?, *id, job).await?;
                return Ok(1);
            }
            let mut transaction = self.awa.pool.begin().await?;
            for (id, job) in jobs {
                insert(&mut transaction, *id, job).await?;
            }
            transaction.commit().await?;
            Ok(jobs.len())
        })
    }
}

async fn insert(connection: &mut PgConnection, id: i64, job: &Job) -> Result<()> {
    sqlx::query(SQL)
        .bind(id)
        .bind(job.kind)
        .bind(&job.queue)
        .bind(&job.args)
        .bind(2_i16)
        .bind(25_i16)
        .bind(job.unique.then(|| job.unique_key()))
        .bind(job.unique.then_some(UNIQUE_STATES))
        .execute(connection)
        .await?;
    Ok(())
}
