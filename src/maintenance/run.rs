//! What a step of maintenance did.

use crate::subtransaction::Failure;
use awa_ingest_core::error::Error;
use pgrx::datum::Interval;
use pgrx::pg_sys::Datum;
use pgrx::{IntoDatum, PgSqlErrorCode};
use std::time::Duration;

/// What can be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// Refreshes the planner's statistics.
    Statistics,
    /// Empties slots of the rings whose jobs are done.
    Prune,
    /// Sets lanes going again that stand.
    Lanes,
}

impl Task {
    /// By its name in SQL.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Statistics, Self::Prune, Self::Lanes].into_iter().find(|task| task.name() == name)
    }

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Statistics => "statistics",
            Self::Prune => "prune",
            Self::Lanes => "lanes",
        }
    }
}

/// How a step ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// There was nothing to do, for a reason where it is not plain.
    Noop(Option<&'static str>),
    /// A table has new statistics.
    Analyzed,
    /// Somebody held a lock on the table.
    SkippedLock,
    /// A slot was emptied.
    Pruned,
    /// A lane that stood goes on.
    Healed,
    /// The slot is still needed, or the lane must stay as it is: why.
    SkippedActive(&'static str),
    /// Counts were folded.
    Rolled,
    /// Another session keeps old row versions alive.
    SkippedPinned,
    /// Sequences are behind what they handed out; nothing was changed.
    Damaged,
    /// A subscription brings rows into the storage's tables.
    SkippedSubscribed,
    /// Somebody held a lock that the step needs; nothing was changed.
    Blocked,
    /// It went wrong; nothing was changed.
    Failed,
}

impl Outcome {
    /// Its name and reason in SQL.
    pub fn names(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Noop(reason) => ("noop", reason),
            Self::Analyzed => ("analyzed", None),
            Self::SkippedLock => ("skipped_lock", None),
            Self::Pruned => ("pruned", None),
            Self::Healed => ("healed", None),
            Self::SkippedActive(reason) => ("skipped_active", Some(reason)),
            Self::Rolled => ("rolled", None),
            Self::SkippedPinned => ("skipped_pinned", None),
            Self::Damaged => ("damaged", None),
            Self::SkippedSubscribed => ("skipped_subscribed", None),
            Self::Blocked => ("blocked", None),
            Self::Failed => ("failed", None),
        }
    }

    /// Whether the step found things as they are to stay, and did nothing.
    pub fn is_quiet(self) -> bool {
        matches!(self, Self::Noop(_) | Self::SkippedActive(_) | Self::SkippedPinned | Self::SkippedSubscribed | Self::Damaged)
    }
}

/// What a step is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// A table, or a lane's claim sequence, with its schema.
    pub relation: Option<String>,
    /// A ring, `rollup`, or `sequences`.
    pub ring: Option<&'static str>,
    /// A slot of it.
    pub slot: Option<i32>,
}

/// A step that was run.
pub struct Run {
    /// The task that it belongs to.
    pub task: Task,
    /// What it was about.
    pub subject: Subject,
    /// How it ended.
    pub outcome: Outcome,
    /// Rows: carried, folded, or assumed by the planner; or positions that a cursor went over.
    pub rows: Option<i64>,
    /// When it began, as `timestamptz`.
    pub started_at: i64,
    /// How long it took.
    pub duration: Duration,
    /// SQLSTATE and message of what went wrong.
    pub error: Option<(String, String)>,
    /// The error itself, where it was one of the server.
    pub failure: Option<Failure>,
}

impl Run {
    /// A task that could not even begin.
    pub fn refused(task: Task, started_at: i64, error: (String, String)) -> Self {
        let (subject, duration) = (Subject::default(), Duration::ZERO);
        Self { task, subject, outcome: Outcome::Failed, rows: None, started_at, duration, error: Some(error), failure: None }
    }

    /// Whether it is to be tried again sooner or later than others.
    pub fn has_failed(&self) -> bool {
        self.outcome == Outcome::Failed
    }

    /// The user's wish to stop, which is not an outcome to go on from.
    pub fn interruption(&mut self) -> Option<Failure> {
        self.failure.take_if(|failure| failure.code() == PgSqlErrorCode::ERRCODE_QUERY_CANCELED)
    }

    /// A line for the log about what went wrong, if anything did.
    pub fn complaint(&self) -> Option<String> {
        let (sqlstate, error) = self.error.as_ref()?;
        let Subject { relation, ring, .. } = &self.subject;
        let subject = relation.as_deref().or(*ring).map_or(String::new(), |subject| format!(" of {subject}"));
        Some(format!("awa_ingest {}{subject}: {error} (SQLSTATE {sqlstate})", self.task.name()))
    }

    /// The columns of `awa_ingest.run_maintenance`, in order.
    pub fn columns(&self) -> [Option<Datum>; 10] {
        let (outcome, reason) = self.outcome.names();
        let (sqlstate, error) = self.error.as_ref().map(|(sqlstate, error)| (&**sqlstate, &**error)).unzip();
        [
            self.task.name().into_datum(),
            self.subject.relation.as_deref().into_datum(),
            self.subject.ring.into_datum(),
            self.subject.slot.into_datum(),
            outcome.into_datum(),
            reason.into_datum(),
            self.rows.into_datum(),
            Interval::from_micros(self.duration.as_micros() as i64).into_datum(),
            sqlstate.into_datum(),
            error.into_datum(),
        ]
    }
}

/// SQLSTATE and message of an error of this extension, with its detail.
pub fn error_of(error: &Error) -> (String, String) {
    let detail = error.detail().map_or(String::new(), |detail| format!(": {detail}"));
    (error.sqlstate().to_owned(), format!("{error}{detail}"))
}
