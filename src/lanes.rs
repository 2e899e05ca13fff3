//! Reserves lane positions: lanes in one order for every writer, each locked until the transaction ends.
//!
//! Positions become visible in the order of the lock, so that the claim cursor never passes a position that is still to come. A position
//! that was taken is never given back, not even by a rollback, and a gap can strand a lane: all lanes are locked first, and positions are
//! taken when the call can no longer start again.
#![allow(unsafe_code)]

use crate::spi::{Argument, Rows, Session, View, argument};
use crate::statements::Statement;
use crate::storage::{Storage, quote};
use crate::{lane_check, provision, sequence, server, subtransaction};
use awa_ingest_core::error::{Error, Result};
use awa_ingest_core::lanes::{Lane, Lanes};
use pgrx::direct_function_call_as_datum;
use pgrx::pg_sys::{self, Oid};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Lanes that are locked until the transaction ends.
pub struct Locked {
    /// Index and sequence of each lane that has jobs, in the order in which they were locked.
    sequences: Vec<(usize, Oid)>,
    /// Time spent waiting for the locks.
    pub waited: Duration,
}

impl Locked {
    /// How many lanes have jobs.
    pub fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Takes the positions that `lanes` counted. Returns each lane's first one, by the lane's index; 0 for lanes without jobs.
    pub fn reserve(&self, lanes: &Lanes) -> Vec<i64> {
        let mut starts = vec![0; lanes.len()];
        self.sequences.iter().for_each(|(index, sequence)| starts[*index] = take(*sequence, lanes.get(*index).count));
        starts
    }
}

/// How long a call has waited for the lock of each of its lanes, by the lane's index: over all attempts, of which each starts anew.
#[derive(Default)]
pub struct Waits {
    /// Waits that are over.
    pub waited: BTreeMap<usize, Duration>,
    asked: Option<(usize, Instant)>,
}

impl Waits {
    /// Another attempt begins: the one before may have ended while it waited.
    pub fn resume(&mut self) {
        if let Some((lane, asked)) = self.asked.take() {
            *self.waited.entry(lane).or_default() += asked.elapsed();
        }
    }

    /// Runs `lock`, which returns when the lane is locked, or fails. Returns for how long it waited.
    fn lock(&mut self, lane: usize, lock: impl FnOnce()) -> Duration {
        let asked = Instant::now();
        self.asked = Some((lane, asked));
        lock();
        self.asked = None;
        let waited = asked.elapsed();
        *self.waited.entry(lane).or_default() += waited;
        waited
    }
}

/// Locks the lanes that have jobs. Takes no position of them.
pub fn lock_all(session: &Session, storage: &Storage, lanes: &Lanes, waits: &mut Waits) -> Result<Locked> {
    let mut locked = Locked { sequences: Vec::new(), waited: Duration::ZERO };
    for index in lanes.in_order() {
        // A lane is created in its turn, not before the others are taken: creating locks it, too.
        let (sequence, name) = find(session, storage, lanes.get(index))?;
        locked.waited += waits.lock(index, || lock(&lock_name(storage, &name)));
        lane_check::check(session, storage, lanes.get(index), sequence, &name)?;
        locked.sequences.push((index, sequence));
    }
    Ok(locked)
}

/// Locks a lane until the transaction ends, and makes it if it does not exist. Returns its sequence, and the time spent waiting.
pub fn hold(session: &Session, storage: &Storage, lane: &Lane) -> Result<(Oid, Duration)> {
    let (sequence, name) = find(session, storage, lane)?;
    let asked = Instant::now();
    lock(&lock_name(storage, &name));
    let waited = asked.elapsed();
    lane_check::check(session, storage, lane, sequence, &name)?;
    Ok((sequence, waited))
}

/// The lane's sequence and its name. The lane is made if it does not exist.
fn find(session: &Session, storage: &Storage, lane: &Lane) -> Result<(Oid, String)> {
    let name = sequence(session, storage, lane).map_or_else(|| provision(session, storage, lane), Ok)?;
    let damaged = || Error::DamagedLane(lane.to_string(), format!("sequence \"{name}\" is missing"));
    let sequence = storage.relation(&name).ok_or_else(damaged)?;
    Ok((sequence, name))
}

/// What the lock of a sequence of the storage is named after.
pub fn lock_name(storage: &Storage, sequence: &str) -> String {
    format!("{}.{}", storage.target.storage, quote(sequence))
}

/// The lane's sequence, if it has one now: the lane may be younger than the transaction's snapshot.
fn sequence(session: &Session, storage: &Storage, lane: &Lane) -> Option<String> {
    session.query(Statement::Lane, &storage.target, &key(lane), View::Latest, Rows::first)
}

fn provision(session: &Session, storage: &Storage, lane: &Lane) -> Result<String> {
    provision::for_writer(session, storage, &lane.queue, lane.priority, lane.shard)?;
    let damaged = || Error::DamagedLane(lane.to_string(), "it has no enqueue sequence".into());
    sequence(session, storage, lane).ok_or_else(damaged)
}

fn key(lane: &Lane) -> [Argument; 3] {
    [argument(&*lane.queue), argument(lane.priority), argument(lane.shard)]
}

/// Takes the advisory lock that SQL would take with `pg_advisory_xact_lock(hashtextextended(name, 0))`, until the transaction ends.
pub fn lock(name: &str) {
    // SAFETY: the hash reads the bytes given; it is what the SQL function computes under every deterministic collation.
    lock_number(unsafe { pg_sys::hash_bytes_extended(name.as_ptr(), name.len() as i32, 0) as i64 });
}

/// Takes the advisory lock of a number, until the transaction ends.
pub fn lock_number(key: i64) {
    // SAFETY: the function gets the one argument of its SQL signature.
    let lock = || unsafe { direct_function_call_as_datum(pg_sys::pg_advisory_xact_lock_int8, &[argument(key)]) };
    subtransaction::asking_for(key, lock);
}

/// Takes `count` consecutive values; the lane's lock is held. Both ways check the caller's privileges.
///
/// nextval would make the lane's position what `lastval()` returns, in place of the id that the session last gave a row of its own. setval
/// does not, and behind the lane's lock the next value is known. Without the right to UPDATE one value can be taken all the same.
pub fn take(sequence: Oid, count: i64) -> i64 {
    take_from(sequence, sequence::position(sequence), count)
}

/// The same where the next value has been read behind the lane's lock.
pub fn take_from(sequence: Oid, next: Option<i64>, count: i64) -> i64 {
    let next = next.filter(|_| server::may(sequence, pg_sys::ACL_UPDATE));
    let first = match next.and_then(|first| Some((first, first.checked_add(count - 1)?))) {
        Some((first, last)) => {
            sequence::set(sequence, last);
            first
        }
        None => {
            let first = server::nextval(sequence);
            if count > 1 {
                sequence::set(sequence, first.saturating_add(count - 1));
            }
            first
        }
    };
    lane_check::taken(sequence, first.saturating_add(count));
    first
}
