//! Acting with the rights of the role that owns a storage, never with those of the extension's owner or of a superuser who
//! calls: tables, triggers and functions of a storage are their owner's code.
//!
//! Who that is, and whether there is an awa, is decided once, from the system catalogs alone (`ownership`). What was not there
//! when it was decided is not touched with these rights.
#![allow(unsafe_code)]

use crate::ownership::{self, Part};
use crate::server;
use crate::spi::{Rows, Session, View, renew_catalogs};
use crate::statements::{Statement, Target};
use crate::storage::{AwaEngine, Engine, Mode, Presence, Storage, Version};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Oid};

/// What says where awa's storage is. An awa too old to have queue storage lacks the last one.
const STATE: [Part<'static>; 4] = [
    Part::Schema("awa"),
    Part::Table("awa", "storage_transition_state"),
    Part::Table("awa", "schema_version"),
    Part::Table("awa", "runtime_storage_backends"),
];

/// What a lane consists of, and what is asked where its jobs are.
pub const LANE: Touched = Touched {
    tables: &["ready_segments"],
    written: &["queue_lanes", "queue_enqueue_heads", "queue_claim_heads"],
    functions: &[("ensure_lane_sequences", &[pg_sys::TEXTOID, pg_sys::INT2OID, pg_sys::INT2OID])],
};

/// What jobs are written to.
const WRITTEN: Touched = Touched {
    tables: &[
        "ready_entries",
        "ready_segments",
        "deferred_jobs",
        "queue_lanes",
        "queue_enqueue_heads",
        "queue_claim_heads",
        "queue_ring_state",
    ],
    written: &[],
    functions: LANE.functions,
};

/// The same on the canonical engine.
const WRITTEN_CANONICAL: Touched = Touched::tables(&["jobs_hot", "scheduled_jobs"]);

/// Tables of schema awa that writers use, wherever the storage is.
const SHARED: [Part<'static>; 2] = [Part::Table("awa", "job_unique_claims"), Part::Table("awa", "queue_meta")];

/// Often enough for a few migrations in a row.
const TRIES: usize = 10;

/// What a piece of work names in the storage's schema.
#[derive(Clone, Copy)]
pub struct Touched {
    /// Tables that are read.
    pub tables: &'static [&'static str],
    /// Tables that are written at a call of anybody, or by a worker.
    pub written: &'static [&'static str],
    /// Functions with their arguments' types.
    pub functions: &'static [(&'static str, &'static [Oid])],
}

impl Touched {
    /// Tables alone.
    pub const fn tables(tables: &'static [&'static str]) -> Self {
        Self { tables, written: &[], functions: &[] }
    }
}

/// Whether there is an awa, what of it can be read, and who owns that.
fn of_state() -> Result<Option<(Oid, Presence)>> {
    for _ in 0..TRIES {
        renew_catalogs();
        let Some(presence) = Presence::now()? else { return Ok(None) };
        let owner = ownership::settle(state_parts(presence))?;
        // Behind the locks it is what it was, unless a migration has ended meanwhile.
        if Presence::now()? == Some(presence) {
            return Ok(Some((owner, presence)));
        }
    }
    Err(Error::MixedOwners("Tables of schema awa are being replaced.".into()))
}

fn state_parts(presence: Presence) -> &'static [Part<'static>] {
    if presence.has_queue_storage { &STATE } else { &STATE[..STATE.len() - 1] }
}

/// Refuses a state that does not belong to the owner of schema awa (55000), for callers who read it with their own rights. They trust that
/// owner, but not all roles that can create tables in the schema: to plan a query on a table runs code of its owner.
pub fn check_state(presence: Presence) -> Result<()> {
    ownership::look(state_parts(presence)).map(|_| ())
}

/// The owner of the storage and of what is touched there, who must own awa's state as well.
pub fn of_storage(storage: &Storage, touched: Touched) -> Result<Oid> {
    ownership::settle(&parts(storage, touched))
}

/// Whether a storage's lanes have one owner at this moment.
pub fn check(storage: &Storage) -> Result<()> {
    let touched = match storage.engine {
        Engine::QueueStorage => LANE,
        Engine::Canonical => WRITTEN_CANONICAL,
    };
    ownership::look(&parts(storage, touched)).map(|_| ())
}

fn parts(storage: &Storage, touched: Touched) -> Vec<Part<'_>> {
    let mut parts = vec![Part::Schema(&storage.schema)];
    if storage.mode == Mode::Attached {
        parts.extend(STATE);
    }
    parts.extend(touched.tables.iter().map(|table| Part::Table(&storage.schema, table)));
    parts.extend(touched.written.iter().map(|table| Part::Written(&storage.schema, table)));
    parts.extend(touched.functions.iter().map(|(name, arguments)| Part::Function(&storage.schema, name, arguments)));
    parts
}

/// The owner of single tables of the storage, by names that were read there.
pub fn of_tables(storage: &Storage, tables: &[String]) -> Result<Oid> {
    let named = tables.iter().map(|table| Part::Table(&storage.schema, table));
    ownership::settle(&[Part::Schema(&storage.schema)].into_iter().chain(named).collect::<Vec<_>>())
}

/// The owner of what jobs are written to.
pub fn of_writing(storage: &Storage) -> Result<Oid> {
    let touched = match storage.engine {
        Engine::QueueStorage => WRITTEN,
        Engine::Canonical => WRITTEN_CANONICAL,
    };
    let mut parts = parts(storage, touched);
    if storage.mode == Mode::Attached {
        parts.extend(SHARED);
    }
    ownership::settle(&parts)
}

/// The owner of the record of runs, which is written.
pub fn of_record() -> Result<Oid> {
    ownership::settle(&[Part::Schema("awa_ingest"), Part::Written("awa_ingest", "maintenance_records")])
}

/// The owner of these tables of the extension's schema.
pub fn of_own(tables: &[&str]) -> Result<Oid> {
    let own = tables.iter().map(|table| Part::Table("awa_ingest", table));
    ownership::settle(&[Part::Schema("awa_ingest")].into_iter().chain(own).collect::<Vec<_>>())
}

/// The owner of this extension.
pub fn of_extension(session: &Session) -> Result<Oid> {
    let owner: Option<i64> = session.query(Statement::ExtensionOwner, &Target::none(), &[], View::Latest, Rows::first);
    owner.map(|oid| Oid::from(oid as u32)).ok_or_else(|| Error::MixedOwners("The extension does not exist.".into()))
}

/// What schema awa says about itself, read with the rights of its owner: even to look runs what is that role's, such as the
/// functions of a policy or of an index.
pub fn engine(session: &Session, view: View) -> Result<Option<AwaEngine>> {
    let read = |(owner, presence)| act_as(owner, || AwaEngine::read(session, presence, view, Version::Checked));
    of_state()?.map(read).transpose()
}

/// The storage that takes jobs now, looked up in the same way.
pub fn resolve(session: &Session, view: View) -> Result<Storage> {
    resolve_with_owner(session, view).map(|(storage, _)| storage)
}

/// The same, and who owns awa's state, where there is awa.
pub fn resolve_with_owner(session: &Session, view: View) -> Result<(Storage, Option<Oid>)> {
    match of_state()? {
        // Decided: nothing in schema awa is looked at any more, whatever comes to be there.
        None => Ok((Storage::embedded()?, None)),
        Some((owner, presence)) => {
            let storage = act_as(owner, || Storage::of_awa(session, presence, view, Version::Checked))?;
            Ok((storage, Some(owner)))
        }
    }
}

/// The storage, for callers who only look: with their own rights, as any query of theirs, but for a superuser with those of the
/// storage's owner.
pub fn resolve_to_read(session: &Session) -> Result<Storage> {
    if server::is_superuser() { resolve(session, View::Caller) } else { Storage::resolve(session, View::Caller, Version::Checked) }
}

/// The storage, for who is about to write there: with his own rights. Who acts for another role looks as the owner of awa's state: that may have
/// come since the role was chosen, and belong to any other.
pub fn resolve_to_write(session: &Session, view: View) -> Result<Storage> {
    // SAFETY: only looks into the process's state.
    let is_for_another = unsafe { pg_sys::InSecurityRestrictedOperation() };
    if is_for_another { resolve(session, view) } else { Storage::resolve(session, view, Version::Checked) }
}

/// Runs `work`, which reads these tables: with the caller's rights, but for a superuser with those of their owner.
pub fn read<T>(storage: &Storage, touched: Touched, work: impl FnOnce() -> T) -> Result<T> {
    let owner = if server::is_superuser() { Some(of_storage(storage, touched)?) } else { None };
    Ok(act_as_if(owner, work))
}

/// With whose rights a superuser's call writes jobs that are not its own.
pub fn writer(storage: &Storage) -> Result<Option<Oid>> {
    if server::is_superuser() { of_writing(storage).map(Some) } else { Ok(None) }
}

/// Runs `work` as `role` if there is one.
pub fn act_as_if<T>(role: Option<Oid>, work: impl FnOnce() -> T) -> T {
    match role {
        Some(role) => act_as(role, work),
        None => work(),
    }
}

/// Runs `work` as `role`, and without the right to become another. Nothing can be left behind that would run with the rights of
/// the session or the caller later, such as a deferred trigger.
pub fn act_as<T>(role: Oid, work: impl FnOnce() -> T) -> T {
    with_context(role, pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION, work)
}

/// Runs `work`, which is code of this extension alone, as the extension's owner.
pub fn act_as_extension<T>(session: &Session, work: impl FnOnce() -> T) -> Result<T> {
    Ok(with_context(of_extension(session)?, pg_sys::SECURITY_LOCAL_USERID_CHANGE, work))
}

/// Settings go back with the user: code of the role that runs in `work` could leave a search path for what comes next.
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
