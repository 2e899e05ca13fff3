//! The ring position that ready rows go to, and the lock that keeps it from being pruned.
//!
//! Read after the lane locks and with a new snapshot at every isolation level: a position read earlier could be older than one that
//! a later range of the lane was written under, and workers would pass what lies between.
#![allow(unsafe_code)]

use crate::server;
use crate::spi::{Session, View};
use crate::statements::{Statement, Target};
use crate::storage::Storage;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Oid};
use std::cell::Cell;

/// Where ready rows go.
pub struct Position {
    /// Ring slot.
    pub slot: i32,
    /// Generation of the slot.
    pub generation: i64,
    /// The slot's partition, or the parent where going past it would skip somebody's rules.
    pub target: Target,
    /// The partitions of ready rows and of their segments, if that is where they go.
    pub partitions: Option<(Oid, Oid)>,
}

thread_local! {
    /// Schema and slot of the last call. The ring seldom turns between calls, so that locking this slot first mostly saves a
    /// second look at the ring.
    static LAST: Cell<Option<(Oid, i32)>> = const { Cell::new(None) };
}

/// The current position, with its partition locked against truncation until the transaction ends.
pub fn current(session: &Session, storage: &Storage) -> Result<Position> {
    let last = LAST.get().filter(|(schema, _)| *schema == storage.schema_oid).map(|(_, slot)| slot);
    // An old slot may be under prune: never wait for one that may not be wanted.
    let mut locked = last.filter(|slot| partition(storage, *slot).is_some_and(try_lock));
    loop {
        // The ring may have turned, and the slot been pruned, before the lock: only a locked slot that is still current is safe.
        let (slot, generation) = read(session, storage)?;
        if locked == Some(slot) {
            LAST.set(Some((storage.schema_oid, slot)));
            let partitions = direct_partitions(storage, slot);
            let target = Target { slot: partitions.map(|_| slot), ..storage.target.clone() };
            return Ok(Position { slot, generation, target, partitions });
        }
        let wanted = partition(storage, slot);
        lock(wanted.ok_or_else(|| Error::UnknownStorage(format!("partition {slot} of ready_entries is missing")))?);
        locked = Some(slot);
    }
}

fn partition(storage: &Storage, slot: i32) -> Option<Oid> {
    storage.relation(&format!("ready_entries_{slot}"))
}

/// What a writer of the table holds: it keeps the table from being truncated.
const WRITER: pg_sys::LOCKMODE = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;

fn lock(relation: Oid) {
    // SAFETY: the lock manager takes any oid; the lock goes with the transaction.
    unsafe { pg_sys::LockRelationOid(relation, WRITER) }
}

fn try_lock(relation: Oid) -> bool {
    // SAFETY: as above.
    unsafe { pg_sys::ConditionalLockRelationOid(relation, WRITER) }
}

fn read(session: &Session, storage: &Storage) -> Result<(i32, i64)> {
    let position = session.query(Statement::Ring, &storage.target, &[], View::Latest, |rows| rows.get(0, 0).zip(rows.get(0, 1)));
    position.ok_or_else(|| Error::UnknownStorage("the ring has no position".into()))
}

/// The slot's partitions, if they may be written without going through their parents: the caller has the right to, and the parents have
/// neither triggers nor row security, which would not apply.
fn direct_partitions(storage: &Storage, slot: i32) -> Option<(Oid, Oid)> {
    let [ready, segments] = ["ready_entries", "ready_segments"].map(|name| {
        let (parent, partition) = storage.relation(name).zip(storage.relation(&format!("{name}_{slot}")))?;
        (is_attached(partition) && server::may(partition, pg_sys::ACL_INSERT) && !has_own_rules(parent)).then_some(partition)
    });
    // The rows' partition is locked already, as what decides. Writers lock what they write.
    segments.inspect(|partition| lock(*partition));
    ready.zip(segments)
}

fn is_attached(partition: Oid) -> bool {
    // SAFETY: any oid may be asked for.
    unsafe { pg_sys::get_rel_relispartition(partition) }
}

fn has_own_rules(relation: Oid) -> bool {
    // SAFETY: opened with a lock that is kept, and closed; the entry is only read in between.
    unsafe {
        let open = pg_sys::relation_open(relation, WRITER);
        let class = &*(*open).rd_rel;
        let rules = class.relhastriggers || class.relrowsecurity || class.relhasrules;
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        rules
    }
}
