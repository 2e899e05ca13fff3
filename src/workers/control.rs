//! `awa_ingest.start_worker` and `awa_ingest.stop_worker`.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::locks::Role;
use super::{Keeper, has_slot, launcher, process, start_maintenance};
use crate::entry::Call;
use crate::server;
use crate::shared;
use crate::shared::databases::{self, State};
use crate::spi::{self, Rows, View, argument};
use crate::statements::{Statement, Target};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Datum};
use pgrx::{IntoDatum, pg_guard};
use std::cell::Cell;
use std::ffi::c_void;
use std::time::Duration;

thread_local! {
    /// The launcher is to look at this database when the transaction has committed.
    static ANNOUNCED: Cell<bool> = const { Cell::new(false) };
}

/// `awa_ingest.start_worker`: has this database a maintenance worker until the server stops. Returns its process; NULL where the launcher
/// starts it once the transaction has committed.
///
/// Raises 25006 on a standby, 53400 if the server has no slot left for a background worker, 55000 where no worker may be: the extension's owner
/// is no superuser, the database is a template, or `awa_ingest.databases` keeps the launcher from it. Needs EXECUTE.
pub fn start_worker(_call: &Call) -> Result<Option<Datum>> {
    if process::is_standby() {
        return Err(Error::Standby);
    }
    if let Some(running) = running() {
        return Ok(running.into_datum());
    }
    let name = may_be_served()?;
    if shared::is_there() {
        if launcher::served().is_some_and(|served| !served.contains(&name)) {
            let hint = "Add it to awa_ingest.databases, or reset that, and reload the configuration.";
            return Err(Error::NotServed("awa_ingest.databases does not name it", hint));
        }
        if !databases::has_launcher() || !has_slot() {
            return Err(Error::NoWorkerSlot);
        }
        if databases::look_up(server::database()).is_none() {
            return Err(Error::NotServed("it serves as many databases as it can", "Narrow awa_ingest.databases."));
        }
        ANNOUNCED.set(true);
        return Ok(None);
    }
    let worker = start_maintenance(server::database(), Keeper::Server).ok_or(Error::NoWorkerSlot)?;
    Ok(worker.wait_for_startup().ok().into_datum())
}

/// The name of this database, where a worker would stay.
fn may_be_served() -> Result<String> {
    if Identity::look_up().is_some_and(|identity| !identity.is_superuser()) {
        let hint = "A worker acts for the extension's owner; make that role a superuser again.";
        return Err(Error::NotServed("the owner of the extension is no superuser", hint));
    }
    match process::look_up_database(server::database()) {
        Some((name, true)) => Ok(name),
        _ => Err(Error::NotServed(
            "it is a template, or takes no connections",
            "See ALTER DATABASE … IS_TEMPLATE and ALLOW_CONNECTIONS.",
        )),
    }
}

/// `awa_ingest.stop_worker`: ends this database's maintenance worker, which is not started again until `start_worker` is called or the server
/// restarts. Returns whether there was one. Waits until it is gone. Without a launcher, one that has just broken down comes back. Raises 25006
/// on a standby. Needs EXECUTE.
pub fn stop_worker(_call: &Call) -> Result<Option<Datum>> {
    if process::is_standby() {
        return Err(Error::Standby);
    }
    let database = server::database();
    if shared::is_there() {
        databases::set(database, State::Stopped);
    }
    ANNOUNCED.set(false);
    // One that is getting up has no lock yet.
    let starting = || if shared::is_there() { databases::look_up(database).map(|(_, worker)| worker) } else { None };
    let current = || running().or_else(|| starting().filter(|worker| *worker != 0));
    let Some(worker) = current() else { return Ok(false.into_datum()) };
    if shared::is_there() {
        databases::end_worker(database);
    } else {
        process::signal(worker, libc::SIGTERM);
    }
    while current() == Some(worker) {
        // SAFETY: sleeps; a signal ends it early.
        unsafe { pg_sys::pg_usleep(Duration::from_millis(5).as_micros() as i64) };
        pgrx::check_for_interrupts!();
    }
    Ok(true.into_datum())
}

/// `awa_ingest.announce_worker`: has the launcher, if there is one, look at this database once the transaction has committed. CREATE EXTENSION
/// calls it.
pub fn announce_worker(_call: &Call) -> Result<Option<Datum>> {
    ANNOUNCED.set(shared::is_there());
    Ok(None)
}

/// The process of this database's maintenance worker.
fn running() -> Option<i32> {
    let lock = [argument(server::database()), argument(Role::Maintenance as i32)];
    spi::connect(|session| session.query(Statement::LockHolder, &Target::none(), &lock, View::Latest, Rows::first))
}

/// Has the server tell when transactions end.
pub fn watch_transactions() {
    // SAFETY: the callback has the wanted signature, raises nothing, and stays loaded as long as the process.
    unsafe { pg_sys::RegisterXactCallback(Some(transaction_ends), std::ptr::null_mut()) }
}

#[pg_guard]
unsafe extern "C-unwind" fn transaction_ends(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_COMMIT if ANNOUNCED.take() => databases::set(server::database(), State::Unknown),
        pg_sys::XactEvent::XACT_EVENT_ABORT | pg_sys::XactEvent::XACT_EVENT_PREPARE => ANNOUNCED.set(false),
        _ => {}
    }
}
