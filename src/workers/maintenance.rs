//! The maintenance worker of a database: prunes in this process, and has another one refresh statistics, which can take minutes.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::locks::{self, Role};
use super::{Keeper, process, start_statistics, start_waiter};
use crate::authority;
use crate::maintenance::{self, Pass, Recorded, Recorder, Run, Task};
use crate::server;
use crate::settings;
use crate::shared::databases::{self, State};
use crate::spi::{self, Rows, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::{Mode, Storage};
use pgrx::bgworkers::{BackgroundWorkerStatus, DynamicBackgroundWorker};
use pgrx::pg_sys::{Datum, Oid};
use pgrx::{PgSqlErrorCode, pg_guard};
use std::time::{Duration, Instant};

/// Longest sleep: whoever drops or copies the database waits five seconds for this worker to leave it.
const TICK: Duration = Duration::from_secs(1);

/// Pauses after failures double from the first to the second of these.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Why a worker ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leave {
    /// It is told to.
    Stopped,
    /// The database has no extension, or none that a worker can serve.
    Gone,
    /// The database is to be dropped, renamed, moved or copied.
    Aside,
    /// The extension has another version or owner.
    Changed,
}

/// Where the process begins.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn awa_ingest_maintenance_main(argument: Datum) {
    let database = Oid::from(argument.value() as u32);
    let keeper = if argument.value() >> 32 == 0 { Keeper::Launcher } else { Keeper::Server };
    process::begin();
    process::connect(Some(database));
    if keeper == Keeper::Launcher {
        databases::set_worker(database, true);
        process::at_exit(Some(tell_launcher));
    }
    let leave = serve(database, keeper);
    match (leave, keeper) {
        (Leave::Gone, Keeper::Launcher) => databases::set(database, State::Absent),
        (Leave::Aside, Keeper::Server) if !start_waiter(database) => process::exit(1),
        (Leave::Changed, Keeper::Server) => process::exit(1),
        _ => {}
    }
    process::exit(0)
}

#[pg_guard]
unsafe extern "C-unwind" fn tell_launcher(_code: i32, _argument: Datum) {
    databases::set_worker(process::database(), false);
}

fn serve(database: Oid, keeper: Keeper) -> Leave {
    let identity = match process::transaction(Identity::look_up) {
        Ok(Some(identity)) => identity,
        Ok(None) => return Leave::Gone,
        Err((_, message)) => {
            pgrx::log!("awa_ingest maintenance: {message}");
            return Leave::Changed;
        }
    };
    if !identity.is_superuser() {
        // Whoever was one can do everything in a session that a superuser began.
        pgrx::log!("awa_ingest maintenance: the owner of the extension in database {} is no superuser", database.to_u32());
        return Leave::Gone;
    }
    if keeper == Keeper::Launcher {
        databases::set(database, State::Present);
    }
    if !locks::take(Role::Maintenance, database) {
        return Leave::Stopped;
    }
    identity.assume();
    let mut worker = Worker::new(database, identity);
    let leave = worker.run();
    if let Some(helper) = worker.statistics.helper.take() {
        helper.process.terminate();
    }
    leave
}

/// When a task is to be run again.
#[derive(Default)]
struct Schedule {
    /// When it last began, by the clock of maintenance.
    last: Option<Duration>,
    /// How often in a row it failed.
    failures: u32,
}

impl Schedule {
    /// How long until it is due; nothing if it is.
    fn wait(&self, now: Duration, interval: Duration) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let pause = if self.failures == 0 { Duration::ZERO } else { PAUSES[0] * (1 << (self.failures - 1).min(6)) };
        // A clock that was set back is no reason to wait.
        let since = now.checked_sub(last).unwrap_or(Duration::MAX);
        interval.max(pause.min(PAUSES[1])).saturating_sub(since)
    }

    fn begin(&mut self, now: Duration) {
        self.last = Some(now);
    }

    fn ended(&mut self, failed: bool) {
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
    }
}

/// The refreshes of statistics.
#[derive(Default)]
struct Statistics {
    schedule: Schedule,
    helper: Option<Helper>,
    /// What the tables looked like when they were last analyzed.
    fingerprint: Option<String>,
}

/// A process that is at it.
struct Helper {
    process: DynamicBackgroundWorker,
    began: i64,
}

struct Worker {
    database: Oid,
    identity: Identity,
    begun: Instant,
    recorder: Recorder,
    /// The log says that runs cannot be recorded.
    complained: bool,
    prune: Schedule,
    statistics: Statistics,
}

impl Worker {
    fn new(database: Oid, identity: Identity) -> Self {
        let (recorder, complained, prune, statistics) = Default::default();
        Self { database, identity, begun: Instant::now(), recorder, complained, prune, statistics }
    }

    fn run(&mut self) -> Leave {
        let mut rest = Duration::ZERO;
        loop {
            if !process::sleep(rest.min(TICK)) {
                return Leave::Stopped;
            }
            let mode = match process::transaction(|| self.look()) {
                Ok(Ok(mode)) => mode,
                Ok(Err(leave)) => return leave,
                // Cancelled, or out of memory: at the next tick.
                Err(_) => Mode::Attached,
            };
            let now = self.clock();
            let prune = self.prune_if_due(now, mode);
            let statistics = self.refresh_if_due(now);
            rest = prune.min(statistics);
        }
    }

    /// The time since this worker began, ahead by as much as the setting says.
    fn clock(&self) -> Duration {
        self.begun.elapsed() + settings::clock_offset()
    }

    /// Whether to go on, and on whose storage.
    fn look(&self) -> Result<Mode, Leave> {
        if locks::database_is_wanted(self.database) {
            return Err(Leave::Aside);
        }
        match Identity::look_up() {
            None => Err(Leave::Gone),
            Some(found) if found != self.identity => Err(Leave::Changed),
            Some(_) => Ok(Storage::mode_now()),
        }
    }

    /// Returns the time until the next prune.
    fn prune_if_due(&mut self, now: Duration, mode: Mode) -> Duration {
        let Some(interval) = settings::prune_interval(mode) else { return Duration::MAX };
        let wait = self.prune.wait(now, interval);
        if !wait.is_zero() {
            return wait;
        }
        self.prune.begin(now);
        process::show(Some(c"prune"));
        let failed = self.run_pass(Task::Prune);
        process::show(None);
        self.prune.ended(failed);
        self.prune.wait(self.clock(), interval)
    }

    /// Runs a task, each step in a transaction, and its record in another: whoever is in the way of that is not to hold up others. Whether
    /// one failed.
    fn run_pass(&mut self, task: Task) -> bool {
        let mut pass = Pass::new(task);
        let mut failed = false;
        while !process::is_stopping() && !pass.is_over() {
            let run = match process::transaction(|| maintenance::step(&mut pass)) {
                Ok(Some(run)) => run,
                Ok(None) => break,
                Err(_) if process::is_stopping() => break,
                Err(error) => pass.give_up(error),
            };
            failed |= run.error.is_some();
            self.keep(&run);
        }
        failed
    }

    /// Records a run. What cannot be recorded is said in the log, once in a while.
    fn keep(&mut self, run: &Run) {
        let recorded = process::transaction(|| spi::connect(|session| self.recorder.record(session, run)));
        let problem = match recorded {
            Ok(Ok(Recorded::Counted)) => return,
            Ok(Ok(Recorded::Written)) => {
                self.complained = false;
                return;
            }
            _ if self.complained || process::is_stopping() => return,
            Ok(Ok(Recorded::Locked)) => "it is locked".into(),
            Ok(Err(error)) => error.to_string(),
            Err((_, message)) => message,
        };
        self.complained = true;
        pgrx::log!("awa_ingest maintenance: cannot write to awa_ingest.maintenance_runs: {problem}");
    }

    /// Returns the time until the next refresh, or until the one that runs is to be looked at.
    fn refresh_if_due(&mut self, now: Duration) -> Duration {
        if self.statistics.helper.is_some() {
            self.watch_helper();
        }
        let Some(interval) = settings::statistics_interval() else { return Duration::MAX };
        let wait = self.statistics.schedule.wait(now, interval);
        if self.statistics.helper.is_some() || !wait.is_zero() {
            return wait.max(TICK);
        }
        self.statistics.schedule.begin(now);
        if self.is_unchanged() {
            return interval;
        }
        let began = server::clock();
        match start_statistics(self.database) {
            Some(process) => self.statistics.helper = Some(Helper { process, began }),
            None => {
                let code = crate::subtransaction::sqlstate(PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED);
                let message = "the server has no free slot for a background worker: raise max_worker_processes";
                self.keep(&Run::refused(Task::Statistics, server::clock(), (code, message.into())));
                self.statistics.schedule.ended(true);
            }
        }
        TICK
    }

    /// Whether nothing was written since the last refresh. Remembers how things are now.
    fn is_unchanged(&mut self) -> bool {
        let look = || {
            spi::connect(|session| {
                let storage = authority::resolve(session).ok()?;
                maintenance::fingerprint(session, &storage)
            })
        };
        let Ok(Some(found)) = process::transaction(look) else { return false };
        self.statistics.fingerprint.replace(found.clone()).is_some_and(|last| last == found)
    }

    /// Looks what the process that refreshes statistics is doing. One that is in somebody's way gives up what it is at.
    fn watch_helper(&mut self) {
        let Some(helper) = &self.statistics.helper else { return };
        match helper.process.pid() {
            Ok(pid) => {
                let _ = process::transaction(|| cancel_if_in_the_way(pid));
            }
            Err(BackgroundWorkerStatus::NotYetStarted) => {}
            Err(_) => {
                let began = helper.began;
                let incomplete = process::transaction(|| spi::connect(|session| maintenance::is_incomplete(session, began)));
                if incomplete != Ok(false) {
                    self.statistics.fingerprint = None;
                }
                self.statistics.schedule.ended(false);
                self.statistics.helper = None;
            }
        }
    }
}

fn cancel_if_in_the_way(process: i32) {
    let process = [argument(process)];
    spi::connect(|session| {
        if session.query(Statement::IsInTheWay, &Target::none(), &process, View::Write, Rows::first) == Some(true) {
            session.query(Statement::CancelProcess, &Target::none(), &process, View::Write, |_| ());
        }
    });
}
