//! With whose rights an INSERT through a view writes to the storage.
//!
//! For a view over a table PostgreSQL checks the table's privileges as the view's owner, who vouches for it to those who may use the
//! view. Here the tables behind the foreign table are the storage's, and are written as that owner, too. Two things are different: who writes
//! also runs the storage owner's code, such as a trigger, with his rights. Nothing is left of that for later (a restricted operation), and
//! a superuser's view writes as the storage's owner, whose code it is.
#![allow(unsafe_code)]

use crate::authority;
use crate::spi::{self, View};
use crate::storage::Storage;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, EState, Oid, ResultRelInfo};

/// The owner of the view that an INSERT names; `None` without a view, and for one with the rights of its user.
///
/// # Safety
/// The target is one of a statement that is running.
pub unsafe fn view_owner(target: *mut ResultRelInfo, statement: *mut EState) -> Option<Oid> {
    // SAFETY: a partition refers to the table that the statement names; that has an entry in the statement's range table.
    let owner = unsafe {
        let root = (*target).ri_RootResultRelInfo;
        checked_as(if root.is_null() { target } else { root }, statement)
    };
    // SAFETY: a variable of the process.
    owner.filter(|owner| *owner != Oid::INVALID && *owner != unsafe { pg_sys::GetUserId() })
}

#[cfg(feature = "pg15")]
unsafe fn checked_as(target: *mut ResultRelInfo, statement: *mut EState) -> Option<Oid> {
    // SAFETY: the index is from 1, and 0 for a table without an entry; the caller vouches for the rest.
    unsafe {
        let index = ((*target).ri_RangeTableIndex as usize).checked_sub(1)?;
        let entry = crate::list::nodes::<pg_sys::RangeTblEntry>((*statement).es_range_table).nth(index)?;
        Some((*entry).checkAsUser)
    }
}

#[cfg(not(feature = "pg15"))]
unsafe fn checked_as(target: *mut ResultRelInfo, statement: *mut EState) -> Option<Oid> {
    // SAFETY: the caller vouches for both.
    Some(unsafe { pg_sys::ExecGetResultRelCheckAsUser(target, statement) })
}

/// A view's owner, and who writes to the storage for him.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The view's owner himself.
    Owner(Oid),
    /// The storage's owner, for a superuser.
    Storages(Oid),
}

/// Who writes to the storage for a view's owner.
pub fn of(owner: Option<Oid>) -> Result<Option<Writer>> {
    let Some(owner) = owner else { return Ok(None) };
    // SAFETY: any oid may be asked for.
    if !unsafe { pg_sys::superuser_arg(owner) } {
        return Ok(Some(Writer::Owner(owner)));
    }
    // The view's user may have no right to look. What is looked at as the superuser are the system's catalogs.
    let look_up = || spi::connect(|session| authority::of_writing(&authority::resolve(session, View::Caller)?));
    authority::act_as(owner, look_up).map(|role| Some(Writer::Storages(role)))
}

/// Refuses a storage that is another role's (40001): it came since the writer was chosen.
pub fn check(writer: Option<Writer>, storage: &Storage) -> Result<()> {
    match writer {
        Some(Writer::Storages(role)) if authority::of_writing(storage)? != role => Err(Error::StorageChanged),
        _ => Ok(()),
    }
}

/// Runs `work` as the writer, if there is one.
pub fn act<T>(writer: Option<Writer>, work: impl FnOnce() -> T) -> T {
    let role = writer.map(|writer| match writer {
        Writer::Owner(role) | Writer::Storages(role) => role,
    });
    authority::act_as_if(role, work)
}
