//! The maintenance worker of a database.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::locks::{self, Role};
use super::refresh::Refresh;
use super::schedule::Schedule;
use super::{Keeper, process, start_waiter};
use crate::maintenance::{self, Pass, Recorder, Run, Task};
use crate::server;
use crate::settings;
use crate::shared::databases;
use crate::spi;
use crate::storage::{Mode, Storage};
use pgrx::pg_guard;
use pgrx::pg_sys::{Datum, Oid};
use std::time::{Duration, Instant};

/// Longest sleep: whoever drops or copies the database waits five seconds for this worker to leave it.
pub const TICK: Duration = Duration::from_secs(1);

/// Why a worker ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leave {
    /// It is told to.
    Stopped,
    /// The database has no extension, or none that a worker can serve.
    Gone,
    /// The database is to be dropped, renamed, moved or copied, became a template, or takes no connections any more.
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
    if keeper == Keeper::Server {
        process::end_for_good();
    }
    process::connect(Some(database));
    if keeper == Keeper::Launcher {
        databases::set_worker(database, true);
        process::at_exit(Some(tell_launcher));
    }
    let mut changes = 0;
    let leave = serve(database, keeper, &mut changes);
    match (leave, keeper) {
        (Leave::Gone, Keeper::Launcher) => databases::set_absent(database, changes),
        (Leave::Aside, Keeper::Server) if !start_waiter(database) => process::exit(1),
        (Leave::Changed, Keeper::Server) => process::exit(1),
        _ => {}
    }
    process::exit(0)
}

#[pg_guard]
unsafe extern "C-unwind" fn tell_launcher(_code: i32, _argument: Datum) {
    databases::set_worker(server::database(), false);
}

/// Serves the database until there is a reason to leave. `changes` is what was said of it before that was found.
fn serve(database: Oid, keeper: Keeper, changes: &mut u32) -> Leave {
    let is_told = keeper == Keeper::Launcher;
    if is_told {
        *changes = databases::changes(database);
    }
    let look_up = || Identity::look_up().zip(process::look_up_database(database).map(|(name, _)| name));
    let (identity, name) = match process::transaction(look_up) {
        Ok(Some(found)) => found,
        Ok(None) => return Leave::Gone,
        Err(_) if process::is_stopping() => return Leave::Stopped,
        Err((_, message)) => {
            pgrx::log!("awa_ingest maintenance: {message}");
            return Leave::Changed;
        }
    };
    if !identity.is_superuser() {
        // Whoever was one can do everything in a session that a superuser began.
        pgrx::log!("awa_ingest maintenance: the owner of the extension in database \"{name}\" is no superuser");
        return Leave::Gone;
    }
    if !locks::take(Role::Maintenance, database) || (is_told && !databases::begin_serving(database)) {
        return Leave::Stopped;
    }
    identity.assume();
    let mut worker = Worker::new(database, identity);
    worker.told = is_told.then_some(*changes);
    let leave = worker.run();
    *changes = worker.told.unwrap_or_default();
    leave
}

struct Worker {
    database: Oid,
    identity: Identity,
    begun: Instant,
    /// What was said of the database before it was last looked at, where there is a launcher.
    told: Option<u32>,
    recorder: Recorder,
    /// The log says that runs cannot be recorded.
    complained: bool,
    /// Tasks of which the log says that they fail.
    failing: Vec<Task>,
    prune: Schedule,
    lanes: Schedule,
    refresh: Refresh,
}

impl Worker {
    fn new(database: Oid, identity: Identity) -> Self {
        Self {
            database,
            identity,
            begun: Instant::now(),
            told: None,
            recorder: Recorder::default(),
            complained: false,
            failing: Vec::new(),
            prune: Schedule::default(),
            lanes: Schedule::default(),
            refresh: Refresh::new(database),
        }
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
                // Out of memory, say: at the next tick.
                Err(_) => Mode::Attached,
            };
            let now = self.clock();
            let prune = self.run_if_due(Task::Prune, now, settings::prune_interval(mode));
            let lanes = self.run_if_due(Task::Lanes, now, settings::lanes_interval());
            let (refresh, failed) = self.refresh.run(now);
            failed.iter().for_each(|run| self.keep(run));
            rest = prune.min(lanes).min(refresh);
        }
    }

    /// The time since this worker began, ahead by as much as the setting says.
    fn clock(&self) -> Duration {
        self.begun.elapsed() + settings::clock_offset()
    }

    /// Whether to go on, and on whose storage.
    fn look(&mut self) -> Result<Mode, Leave> {
        if let Some(changes) = &mut self.told {
            *changes = databases::changes(self.database);
        }
        let takes_workers = process::look_up_database(self.database).is_some_and(|(_, takes_workers)| takes_workers);
        if !takes_workers || locks::database_is_wanted(self.database) {
            return Err(Leave::Aside);
        }
        match Identity::look_up() {
            None => Err(Leave::Gone),
            Some(found) if found != self.identity => Err(Leave::Changed),
            Some(_) => Ok(Storage::mode_now()),
        }
    }

    /// Returns the time until the task is due again.
    fn run_if_due(&mut self, task: Task, now: Duration, interval: Option<Duration>) -> Duration {
        let Some(interval) = interval else { return Duration::MAX };
        let wait = self.schedule(task).wait(now, interval);
        if !wait.is_zero() {
            return wait;
        }
        self.schedule(task).begin(now);
        process::show(Some(if task == Task::Lanes { c"lanes" } else { c"prune" }));
        let failed = self.run_pass(task);
        process::show(None);
        self.schedule(task).ended(failed);
        if !failed {
            self.failing.retain(|failing| *failing != task);
        }
        let now = self.clock();
        self.schedule(task).wait(now, interval)
    }

    fn schedule(&mut self, task: Task) -> &mut Schedule {
        if task == Task::Lanes { &mut self.lanes } else { &mut self.prune }
    }

    /// Runs a task, each step that does anything in a transaction, and its record in another: whoever is in the way of that is not to hold up others. Whether
    /// one failed.
    fn run_pass(&mut self, task: Task) -> bool {
        let mut pass = Pass::new(task);
        let mut failed = false;
        while !process::is_stopping() && !pass.is_over() {
            let runs = match process::transaction(|| maintenance::next_steps(&mut pass)) {
                Ok(runs) => runs,
                Err(_) if process::is_stopping() => break,
                Err(error) => vec![pass.give_up(error)],
            };
            failed |= runs.iter().any(Run::has_failed);
            runs.iter().for_each(|run| self.keep(run));
        }
        failed
    }

    /// Records a run. The first of a series that fails is said in the log, and so is what cannot be recorded.
    fn keep(&mut self, run: &Run) {
        if self.recorder.counts(run) {
            return;
        }
        if let Some(complaint) = run.complaint().filter(|_| !self.failing.contains(&run.task)) {
            self.failing.push(run.task);
            pgrx::log!("{complaint}");
        }
        let recorded = process::transaction(|| spi::connect(|session| self.recorder.record(session, run)));
        let problem = match recorded {
            Ok(Ok(true)) => {
                self.complained = false;
                return;
            }
            _ if self.complained || process::is_stopping() => return,
            // DROP EXTENSION came in between, and the next look will see it.
            Err(_) if process::transaction(Identity::look_up) == Ok(None) => return,
            Ok(Ok(false)) => "it is locked".into(),
            Ok(Err(error)) => error.to_string(),
            Err((_, message)) => message,
        };
        self.complained = true;
        pgrx::log!("awa_ingest maintenance: cannot write to awa_ingest.maintenance_records: {problem}");
    }
}
