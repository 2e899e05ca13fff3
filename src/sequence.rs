//! Reads where a sequence stands, without the lock that SQL keeps until the transaction ends.
#![allow(unsafe_code)]

use crate::entry::Call;
use crate::server;
use crate::spi::argument;
use awa_ingest_core::error::Result;
use pgrx::pg_sys::{self, Datum, Oid, Relation};
use pgrx::{IntoDatum, direct_function_call_as_datum};

const LOCK: i32 = pg_sys::AccessShareLock as i32;

/// `awa_ingest.sequence_position`: the value that comes next. NULL for a sequence that the caller has neither SELECT nor USAGE on, and for
/// what is no sequence.
pub fn sequence_position(call: &Call) -> Result<Option<Datum>> {
    let sequence = call.argument(0).map(|datum| Oid::from(datum.value() as u32));
    Ok(sequence.and_then(readable_position).and_then(IntoDatum::into_datum))
}

/// The value that comes next; `None` for what the caller may not read, and for what is no sequence.
pub fn readable_position(sequence: Oid) -> Option<i64> {
    may_read(sequence).then(|| position(sequence)).flatten()
}

/// The value that comes next, whoever may read it.
pub fn position(sequence: Oid) -> Option<i64> {
    // SAFETY: the relation, if it is still there, is locked while it is read, and closed with its lock.
    unsafe {
        let relation = pg_sys::try_relation_open(sequence, LOCK);
        if relation.is_null() {
            return None;
        }
        let next = read(relation);
        pg_sys::relation_close(relation, LOCK);
        next
    }
}

/// Has the sequence go on behind `last`. Checks the caller's privileges, and is not undone by a rollback.
pub fn set(sequence: Oid, last: i64) {
    // SAFETY: the function gets the two arguments of its SQL signature, and raises for anything that is no sequence.
    unsafe { direct_function_call_as_datum(pg_sys::setval_oid, &[argument(sequence), argument(last)]) };
}

/// Whether the caller may read where a sequence stands.
pub fn may_read(sequence: Oid) -> bool {
    is_sequence(sequence) && (server::may(sequence, pg_sys::ACL_SELECT) || server::may(sequence, pg_sys::ACL_USAGE))
}

fn is_sequence(relation: Oid) -> bool {
    // SAFETY: any oid may be asked for.
    unsafe { pg_sys::get_rel_relkind(relation) as u8 == pg_sys::RELKIND_SEQUENCE }
}

/// # Safety
/// The relation is open and locked.
unsafe fn read(relation: Relation) -> Option<i64> {
    // SAFETY: a sequence is a heap of one tuple of this struct, which is changed in place; it is visible to every snapshot.
    unsafe {
        let class = &*(*relation).rd_rel;
        // A standby has no file of an unlogged sequence.
        let is_absent = class.relpersistence as u8 == pg_sys::RELPERSISTENCE_UNLOGGED && pg_sys::RecoveryInProgress();
        if class.relkind as u8 != pg_sys::RELKIND_SEQUENCE || is_absent {
            return None;
        }
        let any = &raw mut pg_sys::SnapshotAnyData;
        let (no_key, no_parallel) = (std::ptr::null_mut(), std::ptr::null_mut());
        let scan = pg_sys::heap_beginscan(relation, any, 0, no_key, no_parallel, pg_sys::ScanOptions::SO_TYPE_SEQSCAN);
        let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
        let next = (!tuple.is_null()).then(|| {
            let data = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_sequence_data>();
            data.last_value.checked_add(i64::from(data.is_called))
        });
        pg_sys::heap_endscan(scan);
        next.flatten()
    }
}
