//! Acting with the rights of whoever owns a storage, never with those of the extension's owner: tables, triggers and functions of a
//! storage are their owner's code.
#![allow(unsafe_code)]

use crate::spi::{Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::{Mode, Storage};
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

/// Runs `work` as `role`, and without the right to become another.
pub fn act_as<T>(role: Oid, work: impl FnOnce() -> T) -> T {
    let (mut user, mut context) = (Oid::INVALID, 0);
    let local = pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
    // SAFETY: user and context are put back afterwards, or by the transaction's end after an error.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(role, context | local);
        let result = work();
        pg_sys::SetUserIdAndSecContext(user, context);
        result
    }
}
