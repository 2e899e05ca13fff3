//! `awa_ingest.discard` and `discard_queue`: remove jobs that wait in the embedded storage, with all that belongs to them.

use crate::authority;
use crate::catalog::QueueCatalog;
use crate::entry::Call;
use crate::spi::{self, Argument, Rows, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::{Mode, Storage};
use awa_ingest_core::error::{Error, Result};
use awa_ingest_core::route::Catalog;
use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

/// Removes one job. Returns whether it waited there. Raises 55000 where awa has the jobs. Needs what `awa_ingest.grant_operator` grants.
pub fn discard(call: &Call) -> Result<Option<Datum>> {
    own_storage()?;
    Ok((remove(Statement::Discard, call.argument(0)) > 0).into_datum())
}

/// Removes the jobs of a queue, committed before the call. Returns how many. Errors and rights are those of [`discard`].
pub fn discard_queue(call: &Call) -> Result<Option<Datum>> {
    let Some(queue) = call.text(0)? else { return Ok(None) };
    let storage = own_storage()?;
    let mut queues = vec![queue.to_owned()];
    queues.extend(QueueCatalog { storage: &storage }.stored_queues(queue)?.into_iter().map(|stored| stored.name));
    Ok(remove(Statement::DiscardQueue, argument(queues)).into_datum())
}

/// Ids of awa's jobs are another sequence's: one that is meant for awa must not hit a job that was left in the embedded storage.
fn own_storage() -> Result<Storage> {
    let storage = spi::connect(|session| authority::resolve_to_read(session))?;
    if storage.mode == Mode::Embedded { Ok(storage) } else { Err(Error::AwasJobs) }
}

fn remove(statement: Statement, which: Argument) -> i64 {
    let target = Target::none();
    spi::connect(|session| {
        session.run(Statement::DiscardLock, &target, &[]);
        session.query(statement, &target, &[which], View::Write, Rows::first).unwrap_or_default()
    })
}
