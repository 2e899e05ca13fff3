//! Writes the rows: one statement each for ready rows, their segments, and deferred jobs.

use crate::ring::Position;
use crate::spi::{Argument, Session, argument};
use crate::statements::{Statement, Target};
use crate::storage::Storage;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::Datum;

/// Writes `jobs` ready rows and their segments at the ring position, behind the lanes' first positions. `now` is a `timestamptz`.
pub fn ready(session: &Session, position: &Position, starts: Vec<i64>, now: i64, jobs: u64) -> Result<()> {
    let arguments = [argument(position.slot), argument(position.generation), argument(starts), Some(Datum::from(now))];
    write(session, Statement::Ready, &position.target, &arguments, jobs, "ready_entries")?;
    session.run(Statement::Segments, &position.target, &arguments);
    Ok(())
}

/// Writes `jobs` deferred jobs. `now` is a `timestamptz`.
pub fn deferred(session: &Session, storage: &Storage, now: i64, jobs: u64) -> Result<()> {
    write(session, Statement::Deferred, &storage.target, &[Some(Datum::from(now))], jobs, "deferred_jobs")
}

/// A trigger or rule that leaves rows out would have us return ids of jobs that do not exist.
fn write(session: &Session, statement: Statement, target: &Target, arguments: &[Argument], jobs: u64, table: &str) -> Result<()> {
    let written = session.run(statement, target, arguments);
    if written == jobs { Ok(()) } else { Err(Error::RowsLeftOut(table.to_owned(), jobs.abs_diff(written))) }
}
