//! Reads a table of few rows as it is committed now, without SQL: no plan, no privilege, and no code of the table's owner takes part.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum, HeapTuple, Oid, Relation};
use std::ffi::CStr;

const LOCK: i32 = pg_sys::AccessShareLock as i32;

/// Why a table was not read: it is gone, no plain table, or has other columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreadable;

/// A row. Its datums are good as long as it is.
pub struct Row<'r, const N: usize> {
    /// Values of the columns asked for.
    pub values: &'r [Option<Datum>; N],
    /// Whether this transaction wrote it.
    pub is_own: bool,
}

/// What `read` makes of the first row that it wants, with a new snapshot.
pub fn first<T, const N: usize>(
    table: Oid,
    columns: &[(&CStr, Oid); N],
    mut read: impl FnMut(Row<'_, N>) -> Option<T>,
) -> Result<Option<T>, Unreadable> {
    // SAFETY: the relation, if it is still there, is locked while it is read, and closed with its lock; the snapshot pushed is popped. After an
    // error the transaction's end does both.
    unsafe {
        let relation = pg_sys::try_relation_open(table, LOCK);
        if relation.is_null() {
            return Err(Unreadable);
        }
        let places = places(relation, columns);
        let found = places.map(|places| {
            let snapshot = pg_sys::GetLatestSnapshot();
            pg_sys::PushActiveSnapshot(snapshot);
            let found = scan(relation, pg_sys::GetActiveSnapshot(), &places, &mut read);
            pg_sys::PopActiveSnapshot();
            found
        });
        pg_sys::relation_close(relation, LOCK);
        found
    }
}

/// Where the columns stand in a row.
///
/// # Safety
/// The relation is open.
unsafe fn places<const N: usize>(relation: Relation, columns: &[(&CStr, Oid); N]) -> Result<[usize; N], Unreadable> {
    // SAFETY: the caller vouches for the relation; any name may be asked for.
    unsafe {
        let class = &*(*relation).rd_rel;
        if class.relkind as u8 != pg_sys::RELKIND_RELATION || class.relam != pg_sys::HEAP_TABLE_AM_OID {
            return Err(Unreadable);
        }
        let mut places = [0; N];
        for (place, (name, kind)) in places.iter_mut().zip(columns) {
            let number = pg_sys::get_attnum((*relation).rd_id, name.as_ptr());
            if number <= 0 || pg_sys::get_atttype((*relation).rd_id, number) != *kind {
                return Err(Unreadable);
            }
            *place = number as usize - 1;
        }
        Ok(places)
    }
}

/// # Safety
/// The relation is open and locked, and a table of rows on the heap with as many columns as the places say.
unsafe fn scan<T, const N: usize>(
    relation: Relation,
    snapshot: pg_sys::Snapshot,
    places: &[usize; N],
    read: &mut impl FnMut(Row<'_, N>) -> Option<T>,
) -> Option<T> {
    // SAFETY: the caller vouches for the relation; a tuple stays in place until the scan goes on.
    unsafe {
        let descriptor = (*relation).rd_att;
        let attributes = (*descriptor).natts as usize;
        let (mut values, mut nulls) = (vec![Datum::from(0); attributes], vec![true; attributes]);
        let (no_key, no_parallel) = (std::ptr::null_mut(), std::ptr::null_mut());
        let scan = pg_sys::heap_beginscan(relation, snapshot, 0, no_key, no_parallel, pg_sys::ScanOptions::SO_TYPE_SEQSCAN);
        let mut found = None;
        while found.is_none() {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            pg_sys::heap_deform_tuple(tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            let wanted = places.map(|place| (!nulls[place]).then_some(values[place]));
            found = read(Row { values: &wanted, is_own: is_own(tuple) });
        }
        pg_sys::heap_endscan(scan);
        found
    }
}

/// # Safety
/// A tuple of the heap, in place.
unsafe fn is_own(tuple: HeapTuple) -> bool {
    // SAFETY: the caller vouches for the tuple.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId((*(*tuple).t_data).t_choice.t_heap.t_xmin) }
}
