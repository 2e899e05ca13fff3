//! Processor time of workers and launcher, and what is written to the log, while nothing happens.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::Client;

use super::{Plan, worker};
use crate::cpu;

/// What was measured of each process: its name, and shares of a core by round.
pub struct Idle {
    pub processes: Vec<(&'static str, Vec<f64>)>,
    /// Bytes of WAL by round.
    pub written: Vec<i64>,
}

/// Let all that was started come to rest.
const REST: Duration = Duration::from_secs(5);

pub async fn measure(databases: &[(&'static str, &Client)], plan: Plan) -> Result<Idle> {
    let observer = databases[0].1;
    let launcher = "SELECT pid FROM awa_ingest.workers WHERE role = 'launcher'";
    let mut pids = vec![("the launcher", observer.query_one(launcher, &[]).await?.get::<_, i32>(0))];
    for (name, client) in databases {
        pids.push((name, worker(client).await?));
    }
    let mut idle = Idle { processes: pids.iter().map(|(name, _)| (*name, Vec::new())).collect(), written: Vec::new() };
    for _ in 0..plan.rounds {
        observer.batch_execute("CHECKPOINT").await?;
        tokio::time::sleep(REST).await;
        let before = pids.iter().map(|(_, pid)| cpu::time_of(*pid)).collect::<Result<Vec<_>>>()?;
        let position: String = observer.query_one("SELECT pg_current_wal_insert_lsn()::text", &[]).await?.get(0);
        tokio::time::sleep(plan.idle).await;
        for (((_, pid), before), (_, shares)) in pids.iter().zip(before).zip(&mut idle.processes) {
            shares.push((cpu::time_of(*pid)? - before).as_secs_f64() / plan.idle.as_secs_f64());
        }
        let written = format!("SELECT (pg_current_wal_insert_lsn() - '{position}'::pg_lsn)::bigint");
        idle.written.push(observer.query_one(&written, &[]).await?.get(0));
    }
    Ok(idle)
}
