//! Reserves lane positions: lanes in one order for every writer, each locked until the transaction ends.
//!
//! Positions become visible in the order of the lock, so that the claim cursor never passes a position that is still to come.
#![allow(unsafe_code)]

use crate::spi::{Session, View, argument};
use crate::statements::Statement;
use crate::storage::{Storage, quote};
use awa_ingest_core::error::{Error, Result};
use awa_ingest_core::lanes::{Lane, Lanes};
use pgrx::direct_function_call_as_datum;
use pgrx::pg_sys::{self, Oid};

/// Reserves the positions that `lanes` counted. Returns each lane's first position, by the lane's index; 0 for lanes without jobs.
pub fn reserve(session: &Session, storage: &Storage, lanes: &Lanes) -> Result<Vec<i64>> {
    let order = lanes.in_order();
    let mut starts = vec![0; lanes.len()];
    let sequences = sequence_names(session, storage, order.iter().map(|lane| lanes.get(*lane)));
    for (index, known) in order.into_iter().zip(sequences) {
        let lane = lanes.get(index);
        // A lane is created in its turn, not before the others are taken: creating locks it, too.
        let sequence = match known {
            Some(name) => name,
            None => provision(session, storage, lane)?,
        };
        let relation = storage
            .relation(&sequence)
            .ok_or_else(|| Error::DamagedLane(lane.to_string(), format!("sequence \"{sequence}\" is missing")))?;
        lock(&format!("{}.{}", storage.target.storage, quote(&sequence)));
        starts[index] = take(relation, lane.count);
    }
    Ok(starts)
}

/// Names of the lanes' sequences, as committed now: a lane may be younger than the transaction's snapshot.
fn sequence_names<'l>(session: &Session, storage: &Storage, lanes: impl Iterator<Item = &'l Lane>) -> Vec<Option<String>> {
    let (mut queues, mut priorities, mut shards) = (Vec::new(), Vec::new(), Vec::new());
    for lane in lanes {
        queues.push(lane.queue.clone());
        priorities.push(lane.priority);
        shards.push(lane.shard);
    }
    if queues.is_empty() {
        return Vec::new();
    }
    let arguments = [argument(queues), argument(priorities), argument(shards)];
    let rows = session.run(Statement::Lanes, &storage.target, &arguments, View::Latest);
    (0..rows.count as usize).map(|row| rows.get(row, 0)).collect()
}

fn provision(session: &Session, storage: &Storage, lane: &Lane) -> Result<String> {
    let arguments = [argument(lane.queue.clone()), argument(lane.priority), argument(lane.shard)];
    session.run(Statement::Provision, &storage.target, &arguments, View::Write);
    let name = sequence_names(session, storage, std::iter::once(lane)).pop().flatten();
    name.ok_or_else(|| Error::DamagedLane(lane.to_string(), "it has no enqueue sequence".into()))
}

/// Takes the advisory lock that SQL would take with `pg_advisory_xact_lock(hashtextextended(name, 0))`, until the transaction ends.
pub fn lock(name: &str) {
    // SAFETY: the hash reads the bytes given; it is what the SQL function computes under every deterministic collation. The lock
    // function gets the one argument of its SQL signature.
    unsafe {
        let key = pg_sys::hash_bytes_extended(name.as_ptr(), name.len() as i32, 0) as i64;
        direct_function_call_as_datum(pg_sys::pg_advisory_xact_lock_int8, &[argument(key)]);
    }
}

/// Takes `count` consecutive values; the lane's lock is held. Both calls check the caller's privileges.
fn take(sequence: Oid, count: i64) -> i64 {
    // SAFETY: nextval raises for anything that is no sequence; setval gets the two arguments of its SQL signature.
    unsafe {
        let first = pg_sys::nextval_internal(sequence, true);
        if count > 1 {
            direct_function_call_as_datum(pg_sys::setval_oid, &[argument(sequence), argument(first + count - 1)]);
        }
        first
    }
}
