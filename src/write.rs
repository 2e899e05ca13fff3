//! Writes the rows: one statement each for ready rows, their segments, and deferred jobs. Ready rows mostly take the direct path.

use crate::direct::{Common, Writer};
use crate::ring::Position;
use crate::spi::{Argument, Session, argument};
use crate::spool::Spool;
use crate::statements::{Statement, Target};
use crate::storage::Storage;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::Datum;

/// Writes `jobs` ready rows of the spool at the ring position, and their segments. A row without its segment is never worked.
pub fn ready(session: &Session, position: &Position, spool: &Spool, common: Common, jobs: u64, segments: u64) -> Result<()> {
    let arguments =
        [argument(common.slot), argument(common.generation), argument(common.starts.clone()), Some(Datum::from(common.now))];
    match position.partitions.map(|(ready, _)| Writer::open(ready, common)) {
        Some(Ok(mut writer)) => {
            spool.ready(|row| writer.put(row));
            complete(writer.finish(), jobs, "ready_entries")?;
        }
        _ => write(session, Statement::Ready, &position.target, &arguments, jobs, "ready_entries")?,
    }
    write(session, Statement::Segments, &position.target, &arguments, segments, "ready_segments")
}

/// Writes `jobs` deferred jobs. `now` is a `timestamptz`.
pub fn deferred(session: &Session, storage: &Storage, now: i64, jobs: u64) -> Result<()> {
    write(session, Statement::Deferred, &storage.target, &[Some(Datum::from(now))], jobs, "deferred_jobs")
}

/// Writes jobs of awa's canonical engine, `available` and `deferred` ones. Its triggers do the rest. `now` is a `timestamptz`.
pub fn canonical(session: &Session, storage: &Storage, now: i64, available: u64, deferred: u64) -> Result<()> {
    if available > 0 {
        write(session, Statement::CanonicalHot, &storage.target, &[Some(Datum::from(now))], available, "jobs_hot")?;
    }
    if deferred > 0 {
        write(session, Statement::CanonicalScheduled, &storage.target, &[], deferred, "scheduled_jobs")?;
    }
    Ok(())
}

/// A trigger or rule that leaves rows out would have us return ids of jobs that do not exist.
pub fn write(
    session: &Session,
    statement: Statement,
    target: &Target,
    arguments: &[Argument],
    jobs: u64,
    table: &str,
) -> Result<()> {
    complete(session.run(statement, target, arguments), jobs, table)
}

fn complete(written: u64, jobs: u64, table: &str) -> Result<()> {
    if written == jobs { Ok(()) } else { Err(Error::RowsLeftOut(table.to_owned(), jobs.abs_diff(written))) }
}
