//! One run of a task, step by step.

use super::ring::{Ring, Slot};
use super::run::{Outcome, Run, Subject, Task, error_of};
use super::statistics::Relation;
use super::{prune, rollup, stalled, statistics};
use crate::authority::{self, Touched};
use crate::lane_cursors::LaneCursors;
use crate::lane_damage;
use crate::report;
use crate::server;
use crate::spi::{self, Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::{Engine, Mode, Storage, Version};
use crate::subtransaction::{self, Failure};
use awa_ingest_core::error::Result;
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Instant;

/// What stands in the place of a ring's name for a look at sequences.
const SEQUENCES: &str = "sequences";
/// The SQLSTATE that producers get.
const DAMAGED: &str = "55000";

/// With whose rights steps run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// The caller's.
    Caller,
    /// The storage's owner's: for workers, whose own are the extension's owner's, and for superusers who call.
    Owner,
}

impl Rights {
    /// Of a call.
    pub fn of_caller() -> Self {
        if server::is_superuser() { Self::Owner } else { Self::Caller }
    }
}

/// A task that is being run.
pub struct Pass {
    task: Task,
    steps: VecDeque<Step>,
    /// What the last step is about, if one began in this transaction.
    begun: Option<Subject>,
}

enum Step {
    /// Finds the tables to analyze.
    FindRelations,
    /// Analyzes one.
    Analyze(Relation),
    /// Prunes the oldest slot of a ring.
    Prune(Ring),
    /// Finds the slots whose counts can be folded.
    FindRollups,
    /// Folds those of one, by slot and generation.
    Rollup(i32, i64),
    /// Finds the lanes that stand.
    FindStalled,
    /// Has one go on.
    Heal(LaneCursors),
    /// Looks for sequences that are behind.
    CheckSequences,
}

/// What a step did, and whether that is to be kept.
pub struct Done {
    /// How it ended.
    pub outcome: Outcome,
    /// Rows, where they were counted.
    pub rows: Option<i64>,
    /// Whether it changed anything.
    pub changed: bool,
}

impl Done {
    /// Nothing was changed, and locks can be given back.
    pub fn nothing(outcome: Outcome) -> Self {
        Self { outcome, rows: None, changed: false }
    }
}

impl Pass {
    /// Begins a task.
    pub fn new(task: Task) -> Self {
        let steps = match task {
            Task::Statistics => vec![Step::FindRelations],
            Task::Prune => Ring::ALL.into_iter().map(Step::Prune).chain([Step::FindRollups]).collect(),
            Task::Lanes => vec![Step::CheckSequences, Step::FindStalled],
        };
        Self { task, steps: steps.into(), begun: None }
    }

    /// Whether no step is left.
    pub fn is_over(&self) -> bool {
        self.steps.is_empty()
    }

    /// Ends the pass with an error that no step is about: SQLSTATE and message.
    pub fn give_up(&mut self, error: (String, String)) -> Run {
        self.steps.clear();
        Run::refused(self.task, server::clock(), error)
    }

    /// The run of a step that an error ended together with its transaction, such as a cancellation that came when the table was
    /// analyzed already. The other steps are still to come. `None` if no step had begun.
    pub fn interrupted(&mut self, error: &(String, String)) -> Option<Run> {
        let subject = self.begun.take()?;
        Some(Run { subject, ..Run::refused(self.task, server::clock(), error.clone()) })
    }

    /// Runs the next step that does anything, and those before it that find nothing to do.
    pub fn next_steps(&mut self, rights: Rights) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        self.begun = None;
        spi::connect(|session| {
            let storage = Self::storage(session, rights)?;
            let acting = Acting { session, storage: &storage, rights };
            while let Some(step) = self.steps.pop_front() {
                if let Some(run) = self.run(&acting, step) {
                    let is_quiet = run.outcome.is_quiet();
                    runs.push(run);
                    if !is_quiet {
                        break;
                    }
                }
            }
            Ok(runs)
        })
    }

    /// What is maintained.
    fn storage(session: &Session, rights: Rights) -> Result<Storage> {
        match rights {
            Rights::Caller => Storage::resolve(session, View::Latest, Version::Checked),
            Rights::Owner => authority::resolve(session, View::Latest),
        }
    }

    fn run(&mut self, acting: &Acting<'_>, step: Step) -> Option<Run> {
        if let Some(outcome) = unfit(self.task, acting) {
            self.steps.clear();
            return Some(acting.run(self.task, Subject::default(), |_| Done::nothing(outcome)));
        }
        match step {
            Step::FindRelations => {
                let relations = statistics::relations(acting.session, acting.storage);
                self.steps.extend(relations.into_iter().map(Step::Analyze));
                None
            }
            Step::Analyze(relation) => {
                let subject = Subject { relation: Some(relation.name.clone()), ..Subject::default() };
                self.begun = Some(subject.clone());
                // Has rights of its own.
                Some(acting.run(self.task, subject, |_| statistics::analyze(acting.session, &relation)))
            }
            Step::Prune(ring) => {
                let subject = Subject { ring: Some(ring.name()), ..Subject::default() };
                let prune = |slot: &Cell<Option<i32>>| {
                    prune::name(acting, ring, slot);
                    acting.act(ring.touched(), || prune::oldest(acting, ring, slot))
                };
                Some(acting.run(self.task, subject, prune))
            }
            Step::FindRollups => self.find_rollups(acting),
            Step::Rollup(slot, generation) => {
                let subject = Subject { ring: Some(rollup::NAME), slot: Some(slot), ..Subject::default() };
                let run = acting.run(self.task, subject, |_| rollup::fold(acting, slot, generation));
                if matches!(run.outcome, Outcome::Blocked | Outcome::SkippedPinned) {
                    self.steps.clear();
                }
                Some(run)
            }
            Step::CheckSequences => Some(acting.check_sequences(self.task)),
            Step::FindStalled => self.find_stalled(acting),
            Step::Heal(lane) => {
                let subject = Subject { relation: Some(stalled::name(acting.storage, &lane)), ..Subject::default() };
                Some(acting.run(self.task, subject, |_| acting.act(stalled::TOUCHED, || stalled::heal(acting, &lane))))
            }
        }
    }

    /// A run only where there are none, or where looking for them failed.
    fn find_stalled(&mut self, acting: &Acting<'_>) -> Option<Run> {
        let run = acting.run(self.task, Subject::default(), |_| {
            if stalled::is_claimed_from(acting.storage) {
                let lanes = acting.act(stalled::TOUCHED, || stalled::lanes(acting.session, acting.storage));
                self.steps.extend(lanes.unwrap_or_else(|error| report::raise(error)).into_iter().map(Step::Heal));
            }
            Done::nothing(Outcome::Noop(None))
        });
        if self.steps.is_empty() { Some(run) } else { None }
    }

    /// A run only where there are none, or where looking for them failed.
    fn find_rollups(&mut self, acting: &Acting<'_>) -> Option<Run> {
        let subject = Subject { ring: Some(rollup::NAME), ..Subject::default() };
        let run = acting.run(self.task, subject, |_| {
            let slots = acting.act(rollup::FOUND, || rollup::slots(acting.session, acting.storage));
            self.steps.extend(slots.into_iter().map(|(slot, generation)| Step::Rollup(slot, generation)));
            Done::nothing(Outcome::Noop(None))
        });
        if self.steps.is_empty() { Some(run) } else { None }
    }
}

/// How a task ends on a storage where it has nothing to do.
fn unfit(task: Task, acting: &Acting<'_>) -> Option<Outcome> {
    match (task, acting.storage.engine, acting.storage.mode) {
        (_, Engine::Canonical, _) => Some(Outcome::Noop(Some("canonical_engine"))),
        // An ANALYZE changes no rows.
        (Task::Statistics, ..) => None,
        _ if is_subscribed(acting.session, acting.storage) => Some(Outcome::SkippedSubscribed),
        // Nothing claims its jobs yet, and its ring does not turn.
        (Task::Prune, Engine::QueueStorage, Mode::Embedded) => Some(Outcome::Noop(Some("embedded_storage"))),
        _ => None,
    }
}

/// Whether logical replication keeps the storage's rows: they are the publisher's to change.
pub fn is_subscribed(session: &Session, storage: &Storage) -> bool {
    let schema = [argument(storage.schema_oid)];
    session.query(Statement::Subscribed, &Target::none(), &schema, View::Latest, Rows::first) == Some(true)
}

/// A step's session, its storage, and who it acts as.
pub struct Acting<'s> {
    /// Where statements run.
    pub session: &'s Session,
    /// What is maintained.
    pub storage: &'s Storage,
    rights: Rights,
}

impl Acting<'_> {
    /// Runs `work`, which touches this part of the storage, with the rights that the step has on it. To be run in a subtransaction.
    pub fn act<T>(&self, touched: Touched, work: impl FnOnce() -> T) -> T {
        match self.rights {
            Rights::Caller => work(),
            Rights::Owner => {
                let owner = prune::carefully(|| authority::of_storage(self.storage, touched));
                authority::act_as(owner.unwrap_or_else(|error| report::raise(error)), work)
            }
        }
    }

    /// Makes sure that a slot's partitions, whose names depend on what was read, belong to the storage's owner as well.
    pub fn check(&self, slot: &Slot) {
        if self.rights == Rights::Owner {
            slot.settle(self.storage).unwrap_or_else(|error| report::raise(error));
        }
    }

    /// Whether sequences are behind is said once a pass, for all of them.
    fn check_sequences(&self, task: Task) -> Run {
        let (subject, mut damage) = (Subject { ring: Some(SEQUENCES), ..Subject::default() }, None);
        let run = self.run(task, subject, |_| {
            damage = self
                .act(lane_damage::touched(self.storage), || prune::carefully(|| lane_damage::summary(self.session, self.storage)));
            Done::nothing(if damage.is_some() { Outcome::Damaged } else { Outcome::Noop(None) })
        });
        let told = |what| (DAMAGED.to_owned(), format!("{what}; awa_ingest.lane_sequence_problems() says how it is repaired"));
        Run { error: damage.map(told).or(run.error), ..run }
    }

    /// Runs a step in a subtransaction. An error leaves nothing of it, and nor does a step that changed nothing: its locks are given back.
    fn run(&self, task: Task, mut subject: Subject, work: impl FnOnce(&Cell<Option<i32>>) -> Done) -> Run {
        let (started_at, begun, slot) = (server::clock(), Instant::now(), Cell::new(subject.slot));
        let result = subtransaction::attempt_keeping(|| work(&slot), |done| done.changed);
        subject.slot = slot.get();
        let (outcome, rows, failure) = match result {
            Ok(done) => (done.outcome, done.rows, None),
            Err(failure) if failure.is_contention() => match task {
                Task::Prune | Task::Lanes => (Outcome::Blocked, None, None),
                Task::Statistics => (Outcome::SkippedLock, None, None),
            },
            Err(failure) => (Outcome::Failed, None, Some(failure)),
        };
        let error = failure.as_ref().map(Failure::report);
        Run { task, subject, outcome, rows, started_at, duration: begun.elapsed(), error, failure }
    }
}

/// Runs the next steps for a worker. A storage that is refused is a failed run.
pub fn next_steps(pass: &mut Pass) -> Vec<Run> {
    let runs = pass.next_steps(Rights::Owner).unwrap_or_else(|error| vec![pass.give_up(error_of(&error))]);
    // The server's error goes with the transaction.
    runs.into_iter().map(|run| Run { failure: None, ..run }).collect()
}
