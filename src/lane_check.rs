//! Refuses to hand out a lane's positions a second time. A sequence that was restored, replicated or set back is behind the jobs in its
//! lane: new ones would be put where workers never come by, or fail on an index that no user knows.
//!
//! A session looks once at each lane, behind the lane's lock, and again when it finds the sequence before where it left it.
#![allow(unsafe_code)]

use crate::lane_damage;
use crate::report;
use crate::sequence;
use crate::spi::Session;
use crate::storage::Storage;
use crate::subtransaction::Failure;
use awa_ingest_core::error::{Damage, Error, Result, Sequence};
use awa_ingest_core::lanes::Lane;
use pgrx::pg_sys::{self, Oid};
use pgrx::{PgSqlErrorCode, PgTryBuilder};
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

thread_local! {
    /// Enqueue sequences of lanes that were looked at, and where they were left.
    static CHECKED: RefCell<HashMap<Oid, i64>> = RefCell::default();
}

/// Raises 55000 where the lane's enqueue sequence would hand out what was handed out. The lane is locked.
pub fn check(session: &Session, storage: &Storage, lane: &Lane, oid: Oid, name: &str) -> Result<()> {
    // What is no sequence says so when it is asked for a position.
    let Some(next) = sequence::position(oid) else { return Ok(()) };
    if CHECKED.with_borrow(|checked| checked.get(&oid).is_some_and(|left| *left <= next)) {
        return Ok(());
    }
    let used = lane_damage::used(session, storage, lane, name);
    if used > next {
        let sequence = Sequence { schema: storage.schema.to_string(), name: name.to_owned() };
        return Err(Error::Damaged(Damage::Behind { lane: lane.to_string(), sequence, next, used }));
    }
    taken(oid, next);
    Ok(())
}

/// Remembers that positions before `next` are handed out.
pub fn taken(oid: Oid, next: i64) {
    CHECKED.with_borrow_mut(|checked| checked.insert(oid, next));
}

/// Runs `write`, which puts jobs into the storage's tables. Where an index refuses a position or an id, the sequence behind it is damaged, and
/// the user is told so: for awa's clients 23505 is a unique key that another job has.
pub fn explained<T>(storage: &Storage, write: impl FnOnce() -> T) -> T {
    // SAFETY: a variable of the process.
    let memory = unsafe { pg_sys::CurrentMemoryContext };
    PgTryBuilder::new(AssertUnwindSafe(write))
        .catch_when(PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION, |error| {
            // SAFETY: the error has just been caught. Nothing is done but to raise it, or another.
            let failure = unsafe { Failure::of(error, memory) };
            match damage(storage, &failure) {
                Some(damage) => report::raise(Error::Damaged(damage)),
                None => failure.raise(),
            }
        })
        .execute()
}

/// What the names of the storages' own unique indexes end in: awa's, and the embedded storage's.
const INDEXES: [&str; 2] = ["_pkey", "_lane"];

/// What a violation of an index says about the storage's sequences. The catalogs cannot be asked in a failed transaction.
fn damage(storage: &Storage, failure: &Failure) -> Option<Damage> {
    let (schema, table, constraint) = failure.constraint()?;
    let kind = constraint.strip_prefix(&*table)?;
    if schema != *storage.schema || !INDEXES.contains(&kind) {
        return None;
    }
    let detail = failure.detail();
    if is_partition(&table, "ready_entries") || is_partition(&table, "ready_segments") {
        return Some(Damage::PositionTaken(detail));
    }
    let name = match &*table {
        "deferred_jobs" => "job_id_seq",
        "jobs_hot" | "scheduled_jobs" => "jobs_id_seq",
        _ => return None,
    };
    Some(Damage::IdTaken { sequence: Sequence { schema, name: name.into() }, detail })
}

fn is_partition(table: &str, parent: &str) -> bool {
    table.strip_prefix(parent).is_some_and(|rest| rest.strip_prefix('_').is_some_and(|slot| slot.parse::<i32>().is_ok()))
}
