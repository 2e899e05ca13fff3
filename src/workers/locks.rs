//! Locks that say who runs where. Locks of the kind that advisory locks are, with a tag that SQL cannot take: nobody can keep a worker
//! from its database.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, LOCKTAG, Oid};

/// Kinds of processes. `sql/install/maintenance.sql` and `sql/statements/lock_holder.sql` know their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Keeps workers in all databases. Its own database is 0.
    Launcher = 1,
    /// Does the upkeep of a database.
    Maintenance = 2,
    /// Refreshes a database's statistics once.
    Statistics = 3,
}

/// Tells these locks from others of the kind.
const FAMILY: u32 = 6512;

/// Takes the lock of a role until this process ends. Whether nobody has it.
pub fn take(role: Role, database: Oid) -> bool {
    let tag = LOCKTAG {
        locktag_field1: database.to_u32(),
        locktag_field2: FAMILY,
        locktag_field3: role as u32,
        locktag_field4: 1,
        locktag_type: pg_sys::LockTagType::LOCKTAG_USERLOCK as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    };
    // SAFETY: the tag is copied. A session's lock, so that it needs no transaction.
    let taken = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, true, true) };
    taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Whether somebody is dropping, renaming, moving or copying a database: all of which wait until nobody is connected to it. To be asked in a
/// transaction.
pub fn database_is_wanted(database: Oid) -> bool {
    let tag = LOCKTAG {
        locktag_field1: 0,
        locktag_field2: pg_sys::DatabaseRelationId.to_u32(),
        locktag_field3: database.to_u32(),
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    };
    // The lock that a process takes for a moment when it connects.
    let mode = pg_sys::RowExclusiveLock as i32;
    // SAFETY: the tag is copied; what was taken is given back at once.
    unsafe {
        if pg_sys::LockAcquire(&tag, mode, false, true) == pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL {
            return true;
        }
        pg_sys::LockRelease(&tag, mode, false);
    }
    false
}
