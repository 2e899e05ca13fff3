//! `awa_ingest.maintenance_runs`: what maintenance did, the newest runs.

use super::pass::Rights;
use super::run::{Outcome, Run, Subject, Task};
use crate::authority;
use crate::server;
use crate::settings;
use crate::spi::{Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use crate::subtransaction;
use awa_ingest_core::error::Result;
use pgrx::pg_sys::Datum;

/// Milliseconds that a record waits for a lock: nobody is to be held up for the sake of a record.
const PATIENCE: i32 = 100;

/// Records a run. Returns the record's id; `None` if somebody kept the table locked.
pub fn record(session: &Session, run: &Run, rights: Rights) -> Result<Option<i64>> {
    let [task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error] = run.columns();
    let started_at = Some(Datum::from(run.started_at));
    let arguments = [started_at, task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error];
    let id = write(rights, || {
        let id = session.query(Statement::RecordRun, &Target::none(), &arguments, View::Write, Rows::first);
        // Where the snapshot is kept, rows that others have deleted since would be an error: the next run trims.
        if !server::keeps_snapshot() {
            session.run(Statement::TrimRuns, &Target::none(), &[argument(settings::maintenance_history())]);
        }
        id
    })?;
    Ok(id.flatten())
}

/// Runs `work` with a short lock timeout; `None` if that was over. A worker writes as the table's owner, whose triggers run then.
fn write<T>(rights: Rights, work: impl FnOnce() -> T) -> Result<Option<T>> {
    let limited = || subtransaction::within(PATIENCE, work);
    let written = match rights {
        Rights::Caller => subtransaction::attempt(limited),
        Rights::Owner => {
            let settle = || subtransaction::within(PATIENCE, authority::of_record);
            match subtransaction::attempt(settle) {
                Ok(owner) => {
                    let owner = owner?;
                    subtransaction::attempt(|| authority::act_as(owner, limited))
                }
                Err(failure) => Err(failure),
            }
        }
    };
    match written {
        Ok(done) => Ok(Some(done)),
        Err(failure) if failure.is_contention() => Ok(None),
        Err(failure) => failure.raise(),
    }
}

/// Records a worker's runs, which on a quiet database find every second that there is nothing to do: such runs in a row are one record,
/// so that nothing is written while nothing happens.
#[derive(Default)]
pub struct Recorder {
    streaks: Vec<Streak>,
}

struct Streak {
    task: Task,
    subject: Subject,
    outcome: Outcome,
    record: i64,
    repeats: i64,
}

impl Streak {
    fn is_of(&self, run: &Run) -> bool {
        (&self.subject, self.outcome) == (&run.subject, run.outcome)
    }
}

impl Recorder {
    /// Counts a run that is like the one before. Whether it is.
    pub fn counts(&mut self, run: &Run) -> bool {
        let streak = self.place(run).map(|place| &mut self.streaks[place]).filter(|streak| streak.is_of(run));
        streak.map(|streak| streak.repeats += 1).is_some()
    }

    fn place(&self, run: &Run) -> Option<usize> {
        self.streaks.iter().position(|streak| streak.task == run.task && streak.subject.ring == run.subject.ring)
    }

    /// Records a run. Whether it is in the table: not where somebody keeps that locked.
    pub fn record(&mut self, session: &Session, run: &Run) -> Result<bool> {
        let place = self.place(run);
        if let Some(ended) = place.map(|place| self.streaks.swap_remove(place)).filter(|ended| ended.repeats > 0) {
            // Of no matter, should somebody hold the row.
            let repeats = [argument(ended.record), argument(ended.repeats)];
            write(Rights::Owner, || session.run(Statement::RecordRepeats, &Target::none(), &repeats))?;
        }
        let Some(record) = record(session, run, Rights::Owner)? else { return Ok(false) };
        if run.outcome.is_quiet() {
            let Run { task, outcome, .. } = *run;
            self.streaks.push(Streak { task, subject: run.subject.clone(), outcome, record, repeats: 0 });
        }
        Ok(true)
    }
}
