//! Notices what makes remembered things untrue: a lock or row that went with a subtransaction, a change of the catalogs, another user.
#![allow(unsafe_code)]

use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid, SubTransactionId};
use std::cell::Cell;
use std::ffi::c_void;

thread_local! {
    /// Transactions that ended, and subtransactions that were rolled back.
    static ENDS: Cell<u64> = const { Cell::new(0) };
    /// Changes of tables, types and schemas.
    static CATALOG: Cell<u64> = const { Cell::new(0) };
}

/// What has happened so far. Things remembered hold while it is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    ends: u64,
    catalog: u64,
    user: Oid,
}

impl Moment {
    /// What has happened up to now.
    pub fn now() -> Self {
        // SAFETY: processes messages of other sessions, as every lock does; the user is a variable of the process.
        let user = unsafe {
            pg_sys::AcceptInvalidationMessages();
            pg_sys::GetUserId()
        };
        Self { ends: ENDS.get(), catalog: CATALOG.get(), user }
    }

    /// Whether a transaction ended in between, or a subtransaction was rolled back.
    pub fn is_before_end(self, later: Self) -> bool {
        self.ends != later.ends
    }
}

/// Has the server tell.
pub fn watch() {
    // SAFETY: the callbacks have the wanted signatures, raise nothing, and stay loaded as long as the process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction_ends), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(subtransaction_ends), std::ptr::null_mut());
        pg_sys::CacheRegisterRelcacheCallback(Some(table_changes), Datum::from(0));
        pg_sys::CacheRegisterSyscacheCallback(
            pg_sys::SysCacheIdentifier::NAMESPACEOID as i32,
            Some(schema_changes),
            Datum::from(0),
        );
    }
}

fn count(counter: &'static std::thread::LocalKey<Cell<u64>>) {
    counter.set(counter.get().wrapping_add(1));
}

#[pg_guard]
unsafe extern "C-unwind" fn transaction_ends(_event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    count(&ENDS);
}

#[pg_guard]
unsafe extern "C-unwind" fn subtransaction_ends(
    event: pg_sys::SubXactEvent::Type,
    _own: SubTransactionId,
    _parent: SubTransactionId,
    _argument: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        count(&ENDS);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn table_changes(_argument: Datum, _relation: Oid) {
    count(&CATALOG);
}

#[pg_guard]
unsafe extern "C-unwind" fn schema_changes(_argument: Datum, _cache: i32, _hash: u32) {
    count(&CATALOG);
}
