//! Background processes: a launcher where the library is preloaded, a maintenance worker a database, and for a while at a time one that
//! refreshes its statistics.

mod control;
mod identity;
mod launcher;
mod locks;
mod maintenance;
mod process;
mod refresh;
mod schedule;
mod statistics;
mod waiter;

pub use control::{announce_worker, start_worker, stop_worker, watch_transactions};

use crate::server;
use pgrx::IntoDatum;
use pgrx::bgworkers::{BackgroundWorkerBuilder, BgWorkerStartTime, DynamicBackgroundWorker};
use pgrx::pg_sys::Oid;
use std::time::Duration;

/// A worker that broke down, or stepped aside for a new version, starts again after this time: long enough for a fault that stays not to fill
/// the log.
const RESTART: Duration = Duration::from_secs(5);

/// Who sees to it that a worker comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeper {
    /// The launcher.
    Launcher,
    /// The server, and while others use its database alone the waiter.
    Server,
}

/// Has the server start the launcher, once it is no standby. To be called while it preloads libraries.
pub fn register_launcher() {
    builder("launcher", "awa_ingest_launcher_main").set_restart_time(Some(Duration::from_secs(1))).load();
}

/// Starts the maintenance worker of a database. `None` if the server has no slot left.
fn start_maintenance(database: Oid, keeper: Keeper) -> Option<DynamicBackgroundWorker> {
    let by_server = keeper == Keeper::Server;
    let argument = i64::from(database.to_u32()) | i64::from(by_server) << 32;
    let builder = builder("maintenance", "awa_ingest_maintenance_main").set_argument(argument.into_datum());
    builder.set_restart_time(by_server.then_some(RESTART)).set_notify_pid(server::process_id() as i32).load_dynamic().ok()
}

/// Starts a process that refreshes the statistics of a database once.
fn start_statistics(database: Oid) -> Option<DynamicBackgroundWorker> {
    let builder = builder("statistics", "awa_ingest_statistics_main").set_argument(i64::from(database.to_u32()).into_datum());
    builder.set_notify_pid(server::process_id() as i32).load_dynamic().ok()
}

/// Starts a process that waits until a database can be connected to, and starts its maintenance worker then.
fn start_waiter(database: Oid) -> bool {
    let builder = builder("waiter", "awa_ingest_waiter_main").set_argument(i64::from(database.to_u32()).into_datum());
    builder.set_restart_time(Some(RESTART)).load_dynamic().is_ok()
}

/// Whether the server has a slot for one more background worker: one that ends at once takes it for a moment.
fn has_slot() -> bool {
    let probe = builder("probe", "awa_ingest_probe_main").set_notify_pid(server::process_id() as i32).load_dynamic();
    // The slot is free again when its process is gone.
    probe.map(DynamicBackgroundWorker::wait_for_shutdown).is_ok()
}

fn builder(role: &str, function: &str) -> BackgroundWorkerBuilder {
    let name = format!("awa_ingest {role}");
    let builder = BackgroundWorkerBuilder::new(&name).set_library("awa_ingest").set_function(function).enable_spi_access();
    builder.set_start_time(BgWorkerStartTime::RecoveryFinished)
}
