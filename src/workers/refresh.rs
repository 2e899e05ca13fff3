//! Refreshes of statistics: when they are due, and the process that makes them, since an ANALYZE can take minutes.
#![allow(unsafe_code)]

use super::maintenance::TICK;
use super::schedule::Schedule;
use super::{process, start_statistics};
use crate::authority;
use crate::maintenance::{self, Run, Task};
use crate::server;
use crate::settings;
use crate::spi::{self, Rows, View, argument};
use crate::statements::{Statement, Target};
use awa_ingest_core::error::Error;
use pgrx::bgworkers::{BackgroundWorkerStatus, DynamicBackgroundWorker};
use pgrx::pg_guard;
use pgrx::pg_sys::{Datum, Oid};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The process that is at it: it ends with this one.
    static PROCESS: Cell<Option<DynamicBackgroundWorker>> = const { Cell::new(None) };
}

/// The refreshes of a database.
pub struct Refresh {
    database: Oid,
    schedule: Schedule,
    /// When the one that runs began, as `timestamptz`.
    began: Option<i64>,
    /// That one was told to let others go first.
    cancelled: bool,
    /// What the tables looked like when they were last analyzed.
    fingerprint: Option<String>,
}

impl Refresh {
    /// None yet.
    pub fn new(database: Oid) -> Self {
        process::at_exit(Some(end_process));
        Self { database, schedule: Schedule::default(), began: None, cancelled: false, fingerprint: None }
    }

    /// Begins one if it is due, or looks after the one that runs. Returns how long nothing is to be done, and what went wrong.
    pub fn run(&mut self, now: Duration) -> (Duration, Option<Run>) {
        if let Some(began) = self.began {
            self.look_after(began);
        }
        let Some(interval) = settings::statistics_interval() else { return (TICK, None) };
        let wait = self.schedule.wait(now, interval);
        if self.began.is_some() || !wait.is_zero() {
            return (wait.max(TICK), None);
        }
        self.schedule.begin(now);
        if self.is_unchanged() {
            return (interval, None);
        }
        self.began = Some(server::clock());
        self.cancelled = false;
        match start_statistics(self.database) {
            Some(process) => {
                PROCESS.set(Some(process));
                (TICK, None)
            }
            None => {
                self.end(true);
                let error = (Error::NoWorkerSlot.sqlstate().into(), format!("{}: raise max_worker_processes", Error::NoWorkerSlot));
                (TICK, Some(Run::refused(Task::Statistics, server::clock(), error)))
            }
        }
    }

    /// Whether nothing was written since the last refresh. Remembers how things are now.
    fn is_unchanged(&mut self) -> bool {
        let look = || {
            spi::connect(|session| {
                let storage = authority::resolve(session, View::Caller).ok()?;
                maintenance::fingerprint(session, &storage)
            })
        };
        let Ok(Some(found)) = process::transaction(look) else { return false };
        self.fingerprint.replace(found.clone()).is_some_and(|last| last == found)
    }

    fn look_after(&mut self, began: i64) {
        let Some(process) = PROCESS.take() else { return };
        match process.pid() {
            Ok(pid) => {
                if process::transaction(|| is_in_the_way(pid)) == Ok(true) {
                    // A cancellation can be caught by the code of an index.
                    process::signal(pid, if self.cancelled { libc::SIGTERM } else { libc::SIGINT });
                    self.cancelled = true;
                }
                PROCESS.set(Some(process));
            }
            Err(BackgroundWorkerStatus::NotYetStarted) => PROCESS.set(Some(process)),
            Err(_) => {
                let incomplete = process::transaction(|| spi::connect(|session| maintenance::is_incomplete(session, began)));
                if incomplete != Ok(Ok(false)) {
                    self.fingerprint = None;
                }
                self.end(false);
            }
        }
    }

    fn end(&mut self, failed: bool) {
        self.began = None;
        self.schedule.ended(failed);
    }
}

fn is_in_the_way(pid: i32) -> bool {
    let pid = [argument(pid)];
    spi::connect(|session| session.query(Statement::IsInTheWay, &Target::none(), &pid, View::Write, Rows::first) == Some(true))
}

#[pg_guard]
unsafe extern "C-unwind" fn end_process(_code: i32, _argument: Datum) {
    if let Some(process) = PROCESS.take() {
        process.terminate();
    }
}
