//! What the foreign tables of one statement share: their pipelines, and the decision when these write.
#![allow(unsafe_code)]

use super::last_row::Watched;
use super::rights::{self, Writer};
use crate::ingest::{Ingest, OnConflict, Summary};
use crate::last::{self, Kept};
use crate::settings;
use awa_ingest_core::error::Result;
use awa_ingest_core::outcome::Outcome;
use pgrx::PgMemoryContexts;
use pgrx::pg_sys::{EState, MemoryContext};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The foreign tables of a statement, its partitions and the targets of WITH: their jobs are counted together and their lanes taken in
/// one order, if they treat conflicts alike.
pub struct Statement {
    pipelines: RefCell<Vec<Pipeline>>,
    /// Tables that wait for rows.
    tables: Cell<usize>,
    memory: MemoryContext,
    /// Plan nodes whose last row is waited for.
    pub watched: RefCell<Vec<Watched>>,
    /// What was written, for EXPLAIN.
    reports: RefCell<Vec<Report>>,
    /// What the session is to remember of the statement, whatever its triggers do.
    kept: Cell<Option<Kept>>,
}

/// Which pipeline a table's rows go to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What happens to jobs whose keys are taken.
    pub on_conflict: OnConflict,
    /// Outcomes are known as rows arrive, and jobs that are skipped are not spooled.
    pub at_once: bool,
    /// Who writes them; `None` for the session's user.
    pub role: Option<Writer>,
    /// Whether the rows may come from one of awa's clients.
    pub for_awa: bool,
}

struct Pipeline {
    policy: Policy,
    ingest: Ingest<Outcome>,
}

/// What a pipeline did.
#[derive(Clone)]
pub struct Report {
    /// The rows that went there.
    pub policy: Policy,
    /// Schema of the storage.
    pub storage: Rc<str>,
    /// Jobs that were left out.
    pub skipped: i64,
    /// The rest.
    pub summary: Summary,
}

thread_local! {
    /// Statements under way. A statement's memory keeps its own alive, and drops it in whatever way it ends.
    static OPEN: RefCell<Vec<(*const EState, Weak<Statement>)>> = const { RefCell::new(Vec::new()) };
}

impl Statement {
    /// The statement, with one more table that waits for rows.
    ///
    /// # Safety
    /// The statement is running.
    pub unsafe fn join(statement: *const EState) -> Rc<Self> {
        let this = Self::find(statement).unwrap_or_else(|| {
            // SAFETY: the caller vouches for the statement.
            let mut memory = PgMemoryContexts::For(unsafe { (*statement).es_query_cxt });
            let new = Rc::new(Self::new(memory.value()));
            OPEN.with_borrow_mut(|open| {
                open.retain(|(_, known)| known.strong_count() > 0);
                open.push((statement, Rc::downgrade(&new)));
            });
            memory.leak_and_drop_on_delete(Rc::clone(&new));
            new
        });
        if this.tables.get() == 0 {
            last::begin();
        }
        this.tables.set(this.tables.get() + 1);
        this
    }

    /// The statement, if one of its tables has joined.
    pub fn find(statement: *const EState) -> Option<Rc<Self>> {
        OPEN.with_borrow(|open| open.iter().find(|(of, known)| *of == statement && known.strong_count() > 0)?.1.upgrade())
    }

    fn new(memory: MemoryContext) -> Self {
        Self {
            pipelines: RefCell::default(),
            tables: Cell::new(0),
            memory,
            watched: RefCell::default(),
            reports: RefCell::default(),
            kept: Cell::default(),
        }
    }

    /// Hands a row's job to the pipeline for a policy.
    pub fn add<T>(&self, policy: Policy, add: impl FnOnce(&mut Ingest<Outcome>) -> Result<T>) -> Result<T> {
        let mut pipelines = self.pipelines.borrow_mut();
        let index = match pipelines.iter().position(|known| known.policy == policy) {
            Some(index) => index,
            None => {
                let new = || {
                    let outcome = Outcome::new(settings::outcome_memory());
                    rights::act(policy.role, || Ingest::new(policy.on_conflict, outcome))
                };
                // SAFETY: the statement's memory outlives the pipeline.
                let ingest = unsafe { PgMemoryContexts::For(self.memory).switch_to(|_| new()) }?;
                rights::check(policy.role, ingest.storage())?;
                let ingest = if policy.for_awa { ingest.for_awa() } else { ingest };
                pipelines.push(Pipeline { policy, ingest: ingest.streaming(policy.at_once) });
                pipelines.len() - 1
            }
        };
        add(&mut pipelines[index].ingest)
    }

    /// One table has all its rows. Where no other waits for rows, everything is written, and remembered.
    pub fn leave(&self) -> Result<()> {
        let tables = self.tables.get() - 1;
        self.tables.set(tables);
        if tables > 0 {
            return Ok(());
        }
        self.kept.set(Some(last::remember(None, Outcome::new(0), Summary::default())));
        for Pipeline { policy, ingest } in self.pipelines.take() {
            let storage = ingest.storage().clone();
            // SAFETY: the spool lives in the statement's memory, and so must what the writing adds to it.
            let (outcome, summary) =
                unsafe { PgMemoryContexts::For(self.memory).switch_to(|_| rights::act(policy.role, || ingest.finish())) }?;
            let (_, skipped) = outcome.counts();
            let report = Report { policy, storage: Rc::clone(&storage.schema), skipped, summary };
            self.reports.borrow_mut().push(report);
            self.kept.set(Some(last::remember(Some(storage), outcome, summary)));
        }
        Ok(())
    }

    /// The statement's triggers are over, too: what they enqueued is not what the session remembers.
    pub fn end(&self) {
        if let Some(kept) = self.kept.take() {
            last::restore(kept);
        }
    }

    /// What the pipelines for a policy did.
    pub fn reports(&self, policy: Policy) -> Vec<Report> {
        self.reports.borrow().iter().filter(|report| report.policy == policy).cloned().collect()
    }
}
