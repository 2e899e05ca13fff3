//! Keeps one maintenance worker in every database that has the extension.
#![allow(unsafe_code)]

use super::locks::{self, Role};
use super::{Keeper, RESTART, process, start_maintenance};
use crate::list;
use crate::settings;
use crate::shared::databases::{self, State};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// Sleep while all is as it should be. Whoever drops or copies a database waits five seconds for its worker to leave it, and in the middle of
/// a query a worker does not look.
const LONG: Duration = Duration::from_secs(1);
/// Sleep while a worker is to be started.
const SHORT: Duration = Duration::from_millis(200);

/// A database is looked at again after this time, should CREATE EXTENSION not have told: in a transaction that was prepared, say.
const RELOOK: Duration = Duration::from_secs(300);

/// Where the process begins.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn awa_ingest_launcher_main(_argument: Datum) {
    process::begin();
    process::connect(None);
    databases::begin_launcher();
    locks::take(Role::Launcher, Oid::INVALID);
    let mut launcher = Launcher::default();
    let mut rest = Duration::ZERO;
    while process::sleep(rest) {
        rest = match process::transaction(|| launcher.look()) {
            Ok(true) => LONG,
            Ok(false) => SHORT,
            Err((_, message)) => {
                pgrx::log!("awa_ingest launcher: {message}");
                LONG
            }
        };
    }
    // As the server's own launchers do, so that it is started again unless the server stops.
    process::exit(1)
}

/// A database that can be connected to.
struct Database {
    oid: Oid,
    name: String,
}

#[derive(Default)]
struct Launcher {
    /// When workers were last started.
    started: HashMap<Oid, Instant>,
    /// Since when databases are known to be without the extension.
    absent: HashMap<Oid, Instant>,
    /// Databases of which the log says that they have no worker, since they last had one or wanted none.
    named: HashSet<Oid>,
}

impl Launcher {
    /// Whether there is nothing to do soon.
    fn look(&mut self) -> bool {
        let existing = list();
        databases::retain(|database| existing.iter().any(|existing| existing.oid == database));
        let exists = |database: &Oid, _: &mut Instant| existing.iter().any(|existing| existing.oid == *database);
        self.started.retain(exists);
        self.absent.retain(exists);
        self.named.retain(|database| existing.iter().any(|existing| existing.oid == *database));
        let served = served();
        let (mut settled, mut unknown, mut lacking, mut crowded) = (true, Vec::new(), Vec::new(), Vec::new());
        for database in &existing {
            let is_served = served.as_ref().is_none_or(|served| served.contains(&database.name));
            match databases::look_up(database.oid) {
                Some((_, worker)) if worker != 0 && (!is_served || locks::database_is_wanted(database.oid)) => {
                    databases::end_worker(database.oid);
                }
                Some((State::Present, 0)) if is_served => {
                    settled = false;
                    if !self.start(database) {
                        lacking.push(database);
                    }
                }
                Some((State::Unknown, _)) if is_served => {
                    settled = false;
                    unknown.push(database);
                }
                // Its worker ended as it should: the next one need not wait.
                Some((state @ (State::Absent | State::Stopped), 0)) => {
                    self.started.remove(&database.oid);
                    self.named.remove(&database.oid);
                    if state == State::Absent && self.is_forgotten(database.oid) {
                        databases::set(database.oid, State::Unknown);
                    }
                }
                None if is_served => crowded.push(database),
                _ => {}
            }
        }
        if !self.look_into(&unknown) {
            lacking.extend(unknown);
        }
        self.name("no free slot for the maintenance workers of databases", &lacking, "; raise max_worker_processes");
        self.name("more databases than it can serve; no maintenance worker for", &crowded, "");
        settled
    }

    /// Logs each of these databases once.
    fn name(&mut self, what: &str, databases: &[&Database], remedy: &str) {
        let new: Vec<String> = databases
            .iter()
            .filter(|database| self.named.insert(database.oid))
            .map(|database| format!("\"{}\"", database.name))
            .collect();
        if !new.is_empty() {
            pgrx::log!("awa_ingest launcher: {what} {}{remedy}", new.join(", "));
        }
    }

    /// Starts a worker in a database of which nothing is known, in turns and one after the other: most have no extension, and their workers end
    /// at once. Whether the server had a slot for it.
    fn look_into(&mut self, unknown: &[&Database]) -> bool {
        let since = |database: &&&Database| self.started.get(&database.oid).map(|started| started.elapsed());
        let is_busy = unknown.iter().any(|database| since(&database).is_some_and(|since| since < LONG));
        let next = unknown.iter().max_by_key(|database| since(database).unwrap_or(Duration::MAX)).copied();
        next.filter(|_| !is_busy).is_none_or(|next| self.start(next))
    }

    /// Whether a database without the extension was last looked at long ago.
    fn is_forgotten(&mut self, database: Oid) -> bool {
        let since = *self.absent.entry(database).or_insert_with(Instant::now);
        let is_forgotten = since.elapsed() > RELOOK;
        if is_forgotten {
            self.absent.remove(&database);
        }
        is_forgotten
    }

    /// Starts the worker of a database, unless that is too early. Whether the server had a slot for it.
    fn start(&mut self, database: &Database) -> bool {
        let is_recent = self.started.get(&database.oid).is_some_and(|started| started.elapsed() < RESTART);
        if is_recent || locks::database_is_wanted(database.oid) {
            return true;
        }
        let has_slot = start_maintenance(database.oid, Keeper::Launcher).is_some();
        if has_slot {
            self.started.insert(database.oid, Instant::now());
            self.named.remove(&database.oid);
        }
        has_slot
    }
}

/// The databases that the setting names; `None` for all.
pub fn served() -> Option<Vec<String>> {
    let list = settings::databases()?;
    // SAFETY: the function splits a copy that it may change; its list and names are in the transaction's memory.
    unsafe {
        let mut names = std::ptr::null_mut();
        if !pg_sys::SplitGUCList(pg_sys::pstrdup(list.as_ptr()), b',' as _, &mut names) {
            return Some(Vec::new());
        }
        let name = |name: *mut std::ffi::c_char| CStr::from_ptr(name).to_string_lossy().into_owned();
        Some(list::nodes(names).map(name).collect())
    }
}

/// Databases that take connections. Templates are left alone: whoever copies them wants nobody connected.
fn list() -> Vec<Database> {
    let mut databases = Vec::new();
    // SAFETY: the scan of a shared catalog, as the server's own launcher makes it; rows are copied out.
    unsafe {
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as i32);
        let scan = pg_sys::systable_beginscan(relation, Oid::INVALID, false, std::ptr::null_mut(), 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            if process::takes_workers(row) {
                databases.push(Database { oid: row.oid, name: process::name_of(row) });
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, pg_sys::AccessShareLock as i32);
    }
    databases
}
