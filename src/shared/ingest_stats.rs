//! The counts of all sessions.
#![allow(unsafe_code)]

use awa_ingest_core::ingest_stats::Table;
use pgrx::{AssertPGRXSharedMemory, PgLwLock, pg_shmem_init};
use std::sync::atomic::{AtomicBool, Ordering};

// SAFETY: nothing else has a lock or memory of this name.
static TABLE: PgLwLock<AssertPGRXSharedMemory<Table>> = unsafe { PgLwLock::new(c"awa_ingest_stats") };

// SAFETY: a table has no pointers, and means the same to every process.
const EMPTY: AssertPGRXSharedMemory<Table> = unsafe { AssertPGRXSharedMemory::new(Table::EMPTY) };

/// Whether the server gave us the memory: set in the postmaster, and inherited from there.
static THERE: AtomicBool = AtomicBool::new(false);

/// Asks for the memory, while the server starts.
pub(super) fn register() {
    pg_shmem_init!(TABLE = EMPTY);
    THERE.store(true, Ordering::Relaxed);
}

/// Whether there is a table.
pub fn is_there() -> bool {
    THERE.load(Ordering::Relaxed)
}

/// What `read` finds in the table, if there is one. It must not call the server: others wait.
pub fn read<T>(read: impl FnOnce(&Table) -> T) -> Option<T> {
    is_there().then(|| read(&TABLE.share()))
}

/// Changes the table, if there is one. The same holds for `change`.
pub fn change(change: impl FnOnce(&mut Table)) {
    if is_there() {
        change(&mut TABLE.exclusive());
    }
}
