//! The upkeep of the storage: each task is a series of steps, and each step one bounded piece of work whose outcome is recorded.
//!
//! A worker runs every step in a transaction of its own, `awa_ingest.run_maintenance` all of them in the caller's.

mod pass;
mod prune;
mod record;
mod ring;
mod rings;
mod rollup;
mod run;
mod stalled;
mod statistics;

pub use pass::{Pass, Rights, next_steps};
pub use record::{Recorder, record};
pub use rings::rings;
pub use run::{Run, Task};
pub use stalled::stalled_lane_states;
pub use statistics::{analyze_relation, fingerprint, is_incomplete};

use crate::entry::Call;
use crate::server;
use crate::spi;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::Datum;

/// `awa_ingest.run_maintenance`: runs a task now. One row `(task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error)`
/// a step; what goes wrong in a step is in its row, and the others are run.
///
/// Raises 22023 for anything but `statistics`, `prune` and `lanes`, 0A000 for the latter two above READ COMMITTED, and 55000 where the storage
/// is unknown. Runs with the caller's rights, a superuser's with those of the tables' owners: needs what `awa_ingest.grant_operator` grants.
/// Locks are kept until the transaction ends.
pub fn run_maintenance(call: &Call) -> Result<Option<Datum>> {
    let name = call.text(0)?.unwrap_or("NULL");
    let task = Task::parse(name).ok_or_else(|| Error::UnknownTask(name.to_owned()))?;
    if task != Task::Statistics && server::keeps_snapshot() {
        return Err(Error::KeptSnapshot(task.name()));
    }
    let mut rows = call.rows();
    let (mut pass, rights) = (Pass::new(task), Rights::of_caller());
    while !pass.is_over() {
        for mut run in pass.next_steps(rights)? {
            if let Some(failure) = run.interruption() {
                failure.raise();
            }
            rows.put(run.columns());
            if spi::connect(|session| record(session, &run, rights))?.is_none() {
                pgrx::warning!("what was done could not be recorded: maintenance_records is locked");
            }
        }
    }
    Ok(None)
}
