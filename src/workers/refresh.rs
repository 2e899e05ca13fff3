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
use crate::subtransaction::sqlstate;
use awa_ingest_core::error::Error;
use pgrx::bgworkers::{BackgroundWorkerStatus, DynamicBackgroundWorker};
use pgrx::pg_sys::{Datum, Oid};
use pgrx::{PgSqlErrorCode, pg_guard};
use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    /// The process that is at it: it ends with this one.
    static PROCESS: Cell<Option<DynamicBackgroundWorker>> = const { Cell::new(None) };
}

/// How long cancellations may be in vain.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time between two cancellations.
const AGAIN: Duration = Duration::from_millis(200);

/// The refreshes of a database.
pub struct Refresh {
    database: Oid,
    schedule: Schedule,
    /// When the one that runs began, as `timestamptz`.
    began: Option<i64>,
    /// Since when it has been in somebody's way, and when it was last told to let others go first.
    in_the_way: Option<[Instant; 2]>,
    /// It was ended for that.
    was_ended: bool,
    /// What the tables looked like when they were last analyzed.
    fingerprint: Option<String>,
}

impl Refresh {
    /// None yet.
    pub fn new(database: Oid) -> Self {
        process::at_exit(Some(end_process));
        Self { database, schedule: Schedule::default(), began: None, in_the_way: None, was_ended: false, fingerprint: None }
    }

    /// Begins one if it is due, or looks after the one that runs. Returns how long nothing is to be done, and what went wrong.
    pub fn run(&mut self, now: Duration) -> (Duration, Option<Run>) {
        if let Some(run) = self.began.and_then(|began| self.look_after(began)) {
            return (TICK, Some(run));
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
        (self.in_the_way, self.was_ended) = (None, false);
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

    /// Returns the run of a process that did not come to its end.
    fn look_after(&mut self, began: i64) -> Option<Run> {
        let process = PROCESS.take()?;
        match process.pid() {
            Ok(pid) => {
                match process::transaction(|| is_in_the_way(pid)) {
                    Ok(true) => self.send_away(pid),
                    _ => self.in_the_way = None,
                }
                PROCESS.set(Some(process));
            }
            Err(BackgroundWorkerStatus::NotYetStarted) => PROCESS.set(Some(process)),
            Err(_) => {
                let incomplete = process::transaction(|| spi::connect(|session| maintenance::is_incomplete(session, began)));
                if self.was_ended || incomplete != Ok(Ok(false)) {
                    self.fingerprint = None;
                }
                self.end(false);
                if self.was_ended {
                    let message = "ended, since it was in the way of others and was not to be cancelled";
                    let error = (sqlstate(PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN), message.into());
                    return Some(Run::refused(Task::Statistics, server::clock(), error));
                }
            }
        }
        None
    }

    /// Cancels what the process is at, again and again; ends it when that was in vain, since a cancellation can be caught by the code of an
    /// index. A process that has just been cancelled is given the time to say so: this may be called every few milliseconds.
    fn send_away(&mut self, pid: i32) {
        let now = Instant::now();
        let [since, told] = self.in_the_way.unwrap_or([now; 2]);
        self.was_ended |= now - since > PATIENCE;
        let signal = if self.was_ended { libc::SIGTERM } else { libc::SIGINT };
        let is_due = self.in_the_way.is_none() || now - told > AGAIN;
        if is_due {
            process::signal(pid, signal);
        }
        self.in_the_way = Some([since, if is_due { now } else { told }]);
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
