//! Refuses to drop the extension while its embedded storage has undelivered jobs, and while it stands in for awa's function.
#![allow(unsafe_code)]

use crate::attach::{Body, Function};
use crate::authority::{self, act_as};
use crate::entry::Call;
use crate::list::nodes;
use crate::settings;
use crate::spi::{self, Argument, Rows, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::AwaEngine;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Datum, NodeTag, Oid};
use std::ffi::CStr;

/// Runs before DROP EXTENSION, DROP SCHEMA and DROP OWNED. Raises 2BP01 for one that would take undelivered jobs with it,
/// or the function that awa's clients call.
pub fn guard_drop(call: &Call) -> Result<Option<Datum>> {
    // SAFETY: the context is the event's, if the server calls this for an event.
    let tree = unsafe {
        let context = (*call.raw()).context;
        if context.is_null() || (*context).type_ != NodeTag::T_EventTriggerData {
            return Err(Error::InvalidArgument("guard_drop is called by an event trigger only".into()));
        }
        (*context.cast::<pg_sys::EventTriggerData>()).parsetree
    };
    let Some(dropped) = takes_extension(tree) else { return Ok(None) };
    if dropped != Dropped::Awa && is_standing_in() {
        return Err(Error::StillAttached);
    }
    if settings::allow_drop() || !has_undelivered()? { Ok(None) } else { Err(Error::UndeliveredJobs) }
}

/// What takes the extension along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dropped {
    /// Schema awa, with its function.
    Awa,
    /// Anything else.
    Other,
}

/// Whether awa's clients call this extension's function.
fn is_standing_in() -> bool {
    let is_ours = |function: Function| function.body == Body::Ours;
    AwaEngine::is_there() && spi::connect(Function::look_up).is_some_and(is_ours)
}

/// Read as the storage's owner: who drops a schema that holds a part of the extension need have no right to see jobs.
fn has_undelivered() -> Result<bool> {
    let owner = authority::of_own(&["ready_entries", "deferred_jobs"])?;
    Ok(act_as(owner, || ask(Statement::Undelivered, &[])))
}

fn ask(statement: Statement, arguments: &[Argument]) -> bool {
    spi::connect(|session| session.query(statement, &Target::none(), arguments, View::Caller, Rows::first) == Some(true))
}

/// Whether the command may drop the extension: by name, with a schema that holds a part of it, or with its owner.
fn takes_extension(tree: *mut pg_sys::Node) -> Option<Dropped> {
    // SAFETY: the parse tree of the command that is running; each node is read as what its tag says.
    unsafe {
        match (*tree).type_ {
            NodeTag::T_DropOwnedStmt => {
                let roles = nodes((*tree.cast::<pg_sys::DropOwnedStmt>()).roles);
                let roles: Vec<Oid> = roles.map(|role| pg_sys::get_rolespec_oid(role, true)).collect();
                ask(Statement::Owned, &[argument(roles)]).then_some(Dropped::Other)
            }
            NodeTag::T_DropStmt => {
                let statement = &*tree.cast::<pg_sys::DropStmt>();
                let takes: &[(&CStr, Dropped)] = match statement.removeType {
                    // With CASCADE, dropping the language of some of its functions takes the extension along.
                    pg_sys::ObjectType::OBJECT_EXTENSION => &[(c"awa_ingest", Dropped::Other), (c"plpgsql", Dropped::Other)],
                    pg_sys::ObjectType::OBJECT_SCHEMA => &[(c"awa_ingest", Dropped::Other), (c"awa", Dropped::Awa)],
                    _ => return None,
                };
                // Extensions and schemas are named by single strings.
                let names = nodes::<pg_sys::String>(statement.objects).map(|name| CStr::from_ptr((*name).sval));
                let taken = names.flat_map(|name| takes.iter().filter(move |(known, _)| *known == name));
                taken.map(|(_, dropped)| *dropped).min_by_key(|dropped| *dropped == Dropped::Other)
            }
            _ => None,
        }
    }
}
