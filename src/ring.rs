//! The ring position that ready rows go to, and the lock that keeps it from being pruned.
//!
//! Read after the lane locks and with a new snapshot at every isolation level: a position read earlier could be older than one that
//! a later range of the lane was written under, and workers would pass what lies between.
#![allow(unsafe_code)]

use crate::spi::{Session, View};
use crate::statements::{Statement, Target};
use crate::storage::Storage;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Oid};

/// Where ready rows go.
pub struct Position {
    /// Ring slot.
    pub slot: i32,
    /// Generation of the slot.
    pub generation: i64,
    /// The slot's partition, or the parent where going past it would skip somebody's rules.
    pub target: Target,
}

/// The current position, with its partition locked against truncation until the transaction ends.
pub fn current(session: &Session, storage: &Storage) -> Result<Position> {
    let mut position = read(session, storage)?;
    loop {
        let partition = storage
            .relation(&format!("ready_entries_{}", position.0))
            .ok_or_else(|| Error::UnknownStorage(format!("partition {} of ready_entries is missing", position.0)))?;
        // SAFETY: the lock manager takes any oid; the lock goes with the transaction.
        unsafe { pg_sys::LockRelationOid(partition, pg_sys::RowExclusiveLock as i32) };
        // The ring may have turned, and the slot been pruned, before the lock: only a locked slot that is still current is safe.
        let again = read(session, storage)?;
        if again == position {
            let (slot, generation) = position;
            let direct = writes_directly(storage, slot);
            return Ok(Position { slot, generation, target: Target { slot: direct.then_some(slot), ..storage.target.clone() } });
        }
        position = again;
    }
}

fn read(session: &Session, storage: &Storage) -> Result<(i32, i64)> {
    let rows = session.run(Statement::Ring, &storage.target, &[], View::Latest);
    match (rows.count, rows.first()) {
        (1, Some(slot)) => Ok((slot, rows.get(0, 1).unwrap_or_default())),
        _ => Err(Error::UnknownStorage("the ring has no position".into())),
    }
}

/// Whether the slot's partitions may be written without going through their parents: the caller has the right to, and the parents
/// have neither triggers nor row security, which would not apply.
fn writes_directly(storage: &Storage, slot: i32) -> bool {
    ["ready_entries", "ready_segments"].iter().all(|name| {
        let (parent, partition) = (storage.relation(name), storage.relation(&format!("{name}_{slot}")));
        parent.zip(partition).is_some_and(|(parent, partition)| may_insert(partition) && !has_own_rules(parent))
    })
}

fn may_insert(relation: Oid) -> bool {
    // SAFETY: the check takes any relation of the catalog and raises if it went away.
    unsafe {
        pg_sys::pg_class_aclcheck(relation, pg_sys::GetUserId(), pg_sys::ACL_INSERT as pg_sys::AclMode)
            == pg_sys::AclResult::ACLCHECK_OK
    }
}

fn has_own_rules(relation: Oid) -> bool {
    // SAFETY: opened with a lock that is kept, and closed; the entry is only read in between.
    unsafe {
        let open = pg_sys::relation_open(relation, pg_sys::RowExclusiveLock as i32);
        let class = &*(*open).rd_rel;
        let rules = class.relhastriggers || class.relrowsecurity || class.relhasrules;
        pg_sys::relation_close(open, pg_sys::NoLock as i32);
        rules
    }
}
