//! What the upkeep costs while nothing happens, and how far producers that saturate a lane delay it.

mod delay;
mod idle;
mod report;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio_postgres::Client;

use crate::machine;
use crate::server::Server;
use crate::stores;

/// A launcher, and a process for each of its workers; nobody else who writes, such as autovacuum about the new databases' catalogs, or the server
/// for standbys.
pub const SETTINGS: &str = "shared_preload_libraries = 'awa_ingest'\nmax_worker_processes = 16\nautovacuum = off\nwal_level = minimal\nmax_wal_senders = 0\n";

/// Time between two prunes, which is a tick.
const TICK: Duration = Duration::from_secs(1);

/// How long is measured at a time.
#[derive(Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    pub idle: Duration,
    pub loaded: Duration,
}

impl Plan {
    pub fn new(rounds: usize, quick: bool) -> Self {
        let seconds = |long| Duration::from_secs(if quick { 3 } else { long });
        Self { rounds: if quick { 1 } else { rounds }, idle: seconds(60), loaded: seconds(20) }
    }
}

/// Measures, and prints the result as Markdown.
pub async fn run(server: &Server, plan: Plan) -> Result<()> {
    let socket = server.socket_folder().to_str().context("the server's folder is not UTF-8")?;
    let embedded = stores::create_database(socket, "bench_upkeep_embedded").await?;
    let awa = stores::database_with_awa(socket, "bench_upkeep_awa").await?;
    let pruned = stores::database_with_awa(socket, "bench_upkeep_pruned").await?;
    let tick = format!("ALTER DATABASE bench_upkeep_pruned SET awa_ingest.prune_interval = {}", TICK.as_millis());
    // The library is preloaded, so that the setting is known.
    pruned.batch_execute(&tick).await.context("cannot set the interval of prunes")?;
    for client in [&embedded, &awa, &pruned] {
        stores::create_extension(client).await?;
    }
    let (version, date) = stores::version_and_date(&embedded).await?;

    let databases = [
        ("embedded storage, as it comes", &embedded),
        ("awa's storage, as it comes", &awa),
        ("awa's, pruned every second", &pruned),
    ];
    let idle = idle::measure(&databases, plan).await?;
    let delay = delay::measure(socket, "bench_upkeep_pruned", &pruned, plan).await?;
    print!("{}", report::markdown(&machine::describe(&version, &date), plan, &idle, &delay)?);
    Ok(())
}

/// The process of a database's worker, once it has refreshed the statistics.
async fn worker(client: &Client) -> Result<i32> {
    let sql = "SELECT worker.pid FROM awa_ingest.workers AS worker
                WHERE worker.database = current_database() AND worker.role = 'maintenance'
                  AND EXISTS (SELECT FROM awa_ingest.maintenance_runs WHERE relation LIKE '%.queue_claim_heads')
                  AND NOT EXISTS (SELECT FROM awa_ingest.workers AS other WHERE other.role = 'statistics')";
    for _ in 0..600 {
        if let Some(row) = client.query_opt(sql, &[]).await? {
            return Ok(row.get(0));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ensure!(false, "a database has no worker after a minute");
    unreachable!()
}
