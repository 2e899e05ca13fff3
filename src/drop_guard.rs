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
use crate::subtransaction;
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
    let Some(taken) = takes_extension(tree) else { return Ok(None) };
    // The server refuses the command of a caller who may not run it. Such a caller must not lock the producers out meanwhile.
    if !ask(Statement::MayDrop, &taken.targets, View::Caller) {
        return Ok(None);
    }
    check(taken.dropped)?;
    // Producers that are under way are waited for, and their jobs are seen behind the locks. What DROP itself locks is locked now, so that it waits
    // for nothing later.
    subtransaction::insist(lock_everything);
    check(taken.dropped)?;
    Ok(None)
}

/// What a command drops that takes the extension along.
struct Taken {
    dropped: Dropped,
    /// The extensions, schemas and roles that it names: arguments of [`Statement::MayDrop`].
    targets: [Argument; 3],
}

/// What takes the extension along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Dropped {
    /// Schema awa, with its function.
    Awa,
    /// Anything else.
    Other,
}

fn check(dropped: Dropped) -> Result<()> {
    if dropped != Dropped::Awa && is_standing_in() {
        return Err(Error::StillAttached);
    }
    if settings::allow_drop() || !has_undelivered()? { Ok(()) } else { Err(Error::UndeliveredJobs) }
}

/// Locks every table and sequence of the extension as DROP does, in the order of writers.
fn lock_everything() {
    let list = |rows: &Rows| rows.map(|row| rows.get(row, 0).unwrap_or(Oid::INVALID)).collect::<Vec<Oid>>();
    let relations = spi::connect(|session| session.query(Statement::OwnRelations, &Target::none(), &[], View::Latest, list));
    // SAFETY: the lock manager takes any oid; the locks go with the (sub)transaction.
    relations.into_iter().for_each(|relation| unsafe { pg_sys::LockRelationOid(relation, pg_sys::AccessExclusiveLock as i32) });
}

/// Whether awa's clients call this extension's function.
fn is_standing_in() -> bool {
    let is_ours = |function: Function| function.body == Body::Ours;
    AwaEngine::is_there() && spi::connect(Function::look_up).is_some_and(is_ours)
}

/// Read as the storage's owner: who drops a schema that holds a part of the extension need have no right to see jobs. Read with a new snapshot,
/// which at every isolation level shows what producers committed before they were locked out.
fn has_undelivered() -> Result<bool> {
    let owner = authority::of_own(&["ready_entries", "deferred_jobs"])?;
    Ok(act_as(owner, || ask(Statement::Undelivered, &[], View::Latest)))
}

fn ask(statement: Statement, arguments: &[Argument], view: View) -> bool {
    spi::connect(|session| session.query(statement, &Target::none(), arguments, view, Rows::first) == Some(true))
}

/// Whether the command may drop the extension: by name, with a schema that holds a part of it, or with its owner.
fn takes_extension(tree: *mut pg_sys::Node) -> Option<Taken> {
    let none = || argument(Vec::<String>::new());
    // SAFETY: the parse tree of the command that is running; each node is read as what its tag says.
    unsafe {
        match (*tree).type_ {
            NodeTag::T_DropOwnedStmt => {
                let roles = nodes((*tree.cast::<pg_sys::DropOwnedStmt>()).roles);
                let roles: Vec<Oid> = roles.map(|role| pg_sys::get_rolespec_oid(role, true)).collect();
                let owned = ask(Statement::Owned, &[argument(roles.clone())], View::Caller);
                owned.then(|| Taken { dropped: Dropped::Other, targets: [none(), none(), argument(roles)] })
            }
            NodeTag::T_DropStmt => {
                let statement = &*tree.cast::<pg_sys::DropStmt>();
                let is_schema = statement.removeType == pg_sys::ObjectType::OBJECT_SCHEMA;
                let takes: &[(&CStr, Dropped)] = match statement.removeType {
                    // With CASCADE, dropping the language of some of its functions takes the extension along.
                    pg_sys::ObjectType::OBJECT_EXTENSION => &[(c"awa_ingest", Dropped::Other), (c"plpgsql", Dropped::Other)],
                    pg_sys::ObjectType::OBJECT_SCHEMA => &[(c"awa_ingest", Dropped::Other), (c"awa", Dropped::Awa)],
                    _ => return None,
                };
                // Extensions and schemas are named by single strings.
                let names: Vec<&CStr> =
                    nodes::<pg_sys::String>(statement.objects).map(|name| CStr::from_ptr((*name).sval)).collect();
                let taken = names.iter().flat_map(|name| takes.iter().filter(move |(known, _)| known == name));
                let dropped = taken.map(|(_, dropped)| *dropped).min_by_key(|dropped| *dropped == Dropped::Other)?;
                let names = argument(names.iter().map(|name| name.to_string_lossy().into_owned()).collect::<Vec<String>>());
                let roles = argument(Vec::<Oid>::new());
                let targets = if is_schema { [none(), names, roles] } else { [names, none(), roles] };
                Some(Taken { dropped, targets })
            }
            _ => None,
        }
    }
}
