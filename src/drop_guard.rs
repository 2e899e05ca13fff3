//! Refuses to drop the extension while its embedded storage has undelivered jobs.
#![allow(unsafe_code)]

use crate::entry::Call;
use crate::settings;
use crate::spi::{self, View};
use crate::statements::{Statement, Target};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Datum, NodeTag};
use std::ffi::CStr;

/// Runs before DROP EXTENSION, DROP SCHEMA and DROP OWNED. Raises 2BP01 for one that would take undelivered jobs with it.
pub fn guard_drop(call: &Call) -> Result<Option<Datum>> {
    // SAFETY: the context is the event's, if the server calls this for an event.
    let tree = unsafe {
        let context = (*call.raw()).context;
        if context.is_null() || (*context).type_ != NodeTag::T_EventTriggerData {
            return Err(Error::InvalidArgument("guard_drop is called by an event trigger only".into()));
        }
        (*context.cast::<pg_sys::EventTriggerData>()).parsetree
    };
    if settings::allow_drop() || !takes_extension(tree) || !has_undelivered() {
        return Ok(None);
    }
    Err(Error::UndeliveredJobs)
}

fn has_undelivered() -> bool {
    let target = Target { storage: "awa_ingest".into(), shared: "awa_ingest", slot: None };
    spi::connect(|session| session.run(Statement::Undelivered, &target, &[], View::Caller).first() == Some(true))
}

/// Whether the command may drop the extension: by name, with a schema that holds a part of it, or with its owner.
fn takes_extension(tree: *mut pg_sys::Node) -> bool {
    // SAFETY: the parse tree of the command that is running; each node is read as what its tag says.
    unsafe {
        match (*tree).type_ {
            NodeTag::T_DropOwnedStmt => true,
            NodeTag::T_DropStmt => {
                let statement = &*tree.cast::<pg_sys::DropStmt>();
                let dropped: &[&CStr] = match statement.removeType {
                    pg_sys::ObjectType::OBJECT_EXTENSION => &[c"awa_ingest"],
                    pg_sys::ObjectType::OBJECT_SCHEMA => &[c"awa_ingest", c"awa"],
                    _ => return false,
                };
                names(statement.objects).any(|name| dropped.contains(&name))
            }
            _ => false,
        }
    }
}

/// The names in a list of String nodes.
///
/// # Safety
/// `list` is such a list, or empty, and lives as long as the names are used.
unsafe fn names<'a>(list: *mut pg_sys::List) -> impl Iterator<Item = &'a CStr> {
    // SAFETY: the caller vouches for the list; its length says how many cells there are.
    unsafe {
        let length = if list.is_null() { 0 } else { (*list).length as usize };
        (0..length).map(move |index| {
            let node = (*(*list).elements.add(index)).ptr_value.cast::<pg_sys::String>();
            CStr::from_ptr((*node).sval)
        })
    }
}
