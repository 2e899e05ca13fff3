//! `awa_ingest.maintenance_runs`: what maintenance did, the newest runs.

use super::run::{Outcome, Run, Subject, Task};
use crate::server;
use crate::settings;
use crate::spi::{Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use pgrx::pg_sys::Datum;

/// Records a run. Returns the record's id.
pub fn record(session: &Session, run: &Run) -> Option<i64> {
    let [task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error] = run.columns();
    let started_at = Some(Datum::from(run.started_at));
    let arguments = [started_at, task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error];
    let id = session.query(Statement::RecordRun, &Target::none(), &arguments, View::Write, Rows::first);
    // Where the snapshot is kept, rows that others have deleted since would be an error: the next run trims.
    if !server::keeps_snapshot() {
        session.run(Statement::TrimRuns, &Target::none(), &[argument(settings::maintenance_history())]);
    }
    id
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

impl Recorder {
    /// Records a run, or counts it.
    pub fn record(&mut self, session: &Session, run: &Run) {
        let is_of = |streak: &Streak| streak.task == run.task && streak.subject.ring == run.subject.ring;
        let place = self.streaks.iter().position(is_of);
        if let Some(streak) = place.map(|place| &mut self.streaks[place])
            && (&streak.subject, streak.outcome) == (&run.subject, run.outcome)
        {
            streak.repeats += 1;
            return;
        }
        if let Some(ended) = place.map(|place| self.streaks.swap_remove(place)).filter(|ended| ended.repeats > 0) {
            session.run(Statement::RecordRepeats, &Target::none(), &[argument(ended.record), argument(ended.repeats)]);
        }
        let record = record(session, run);
        if let Some(record) = record.filter(|_| run.outcome.is_quiet()) {
            let Run { task, outcome, .. } = *run;
            self.streaks.push(Streak { task, subject: run.subject.clone(), outcome, record, repeats: 0 });
        }
    }
}
