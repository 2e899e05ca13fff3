//! Acting with the rights of whoever owns a storage, never with those of the extension's owner: tables, triggers and functions of a
//! storage are their owner's code.
#![allow(unsafe_code)]

use crate::spi::{Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::{AwaEngine, Mode, Storage, Version};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Oid};

/// What says where awa's storage is.
const STATE: [&str; 3] = ["storage_transition_state", "runtime_storage_backends", "schema_version"];
/// What a lane consists of.
const LANE: [&str; 3] = ["queue_lanes", "queue_enqueue_heads", "queue_claim_heads"];

/// The owner of awa's state.
pub fn of_state(session: &Session) -> Result<Oid> {
    owner(session, "awa", &STATE.map(|table| ("awa", table)), None)
}

/// The owner of the storage, who must own awa's state as well.
pub fn of_storage(session: &Session, storage: &Storage) -> Result<Oid> {
    let mut tables = LANE.map(|table| (&*storage.schema, table)).to_vec();
    if storage.mode == Mode::Attached {
        tables.extend(STATE.map(|table| ("awa", table)));
    }
    let function = format!("{}.ensure_lane_sequences(text, smallint, smallint)", storage.target.storage);
    owner(session, &storage.schema, &tables, Some(function))
}

/// The owner of the embedded storage's jobs.
pub fn of_embedded(session: &Session) -> Result<Oid> {
    owner(session, "awa_ingest", &[("awa_ingest", "ready_entries"), ("awa_ingest", "deferred_jobs")], None)
}

/// The owner of the record of maintenance.
pub fn of_runs(session: &Session) -> Result<Oid> {
    owner(session, "awa_ingest", &[("awa_ingest", "maintenance_records")], None)
}

/// The owner of this extension.
pub fn of_extension(session: &Session) -> Result<Oid> {
    let owner: Option<i64> = session.query(Statement::ExtensionOwner, &Target::none(), &[], View::Latest, Rows::first);
    owner.map(|oid| Oid::from(oid as u32)).ok_or_else(|| Error::MixedOwners("awa_ingest".into()))
}

fn owner(session: &Session, schema: &str, tables: &[(&str, &str)], function: Option<String>) -> Result<Oid> {
    let schemas: Vec<&str> = tables.iter().map(|(schema, _)| *schema).collect();
    let names: Vec<&str> = tables.iter().map(|(_, name)| *name).collect();
    let functions: Vec<String> = function.into_iter().collect();
    let arguments = [argument(schemas), argument(names), argument(functions)];
    let owner: Option<i64> = session.query(Statement::Authority, &Target::none(), &arguments, View::Latest, Rows::first);
    owner.map(|oid| Oid::from(oid as u32)).ok_or_else(|| Error::MixedOwners(schema.to_owned()))
}

/// The storage that takes jobs now, looked up with the rights of its owner: even to look runs what is his, such as the functions of a
/// policy.
pub fn resolve(session: &Session) -> Result<Storage> {
    let look_up = || Storage::resolve(session, View::Caller, Version::Checked);
    if AwaEngine::is_there() { act_as_restricted(of_state(session)?, look_up) } else { look_up() }
}

/// Runs `work` as `role`, and without the right to become another.
pub fn act_as<T>(role: Oid, work: impl FnOnce() -> T) -> T {
    with_context(role, pg_sys::SECURITY_LOCAL_USERID_CHANGE, work)
}

/// The same where the session's own rights are greater than anybody's: nothing may be left behind that runs with those later, such as a
/// deferred trigger.
pub fn act_as_restricted<T>(role: Oid, work: impl FnOnce() -> T) -> T {
    with_context(role, pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION, work)
}

/// Settings go back with the user: whatever of the role's code runs in `work` could leave a search path for those who come after.
fn with_context<T>(role: Oid, flags: u32, work: impl FnOnce() -> T) -> T {
    let (mut user, mut context) = (Oid::INVALID, 0);
    // SAFETY: user, context and settings are put back afterwards, or by the (sub)transaction's end after an error.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let level = pg_sys::NewGUCNestLevel();
        pg_sys::SetUserIdAndSecContext(role, context | flags as i32);
        let result = work();
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}
