//! Writes the rows: one statement each for ready rows, their segments, and deferred jobs.

use crate::ring::Position;
use crate::spi::{Session, argument};
use crate::statements::Statement;
use crate::storage::Storage;
use pgrx::pg_sys::Datum;

/// Writes ready rows and segments at the ring position, behind the lanes' first positions. `now` is a `timestamptz`.
pub fn ready(session: &Session, position: &Position, starts: Vec<i64>, now: i64) {
    let arguments = [argument(position.slot), argument(position.generation), argument(starts), Some(Datum::from(now))];
    session.run(Statement::Ready, &position.target, &arguments);
    session.run(Statement::Segments, &position.target, &arguments);
}

/// Writes deferred jobs. `now` is a `timestamptz`.
pub fn deferred(session: &Session, storage: &Storage, now: i64) {
    session.run(Statement::Deferred, &storage.target, &[Some(Datum::from(now))]);
}
