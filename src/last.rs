//! What the session's last COPY or INSERT into a foreign table did, until that is rolled back, or the session is given to another user:
//! by DISCARD ALL or RESET ALL, SET ROLE or SET SESSION AUTHORIZATION.
#![allow(unsafe_code)]

use crate::authority::{self, Touched};
use crate::datum::interval;
use crate::entry::Call;
use crate::ingest::Summary;
use crate::jobs::RowType;
use crate::server;
use crate::settings;
use crate::spi::{self, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Mode, Storage};
use awa_ingest_core::error::{Error, Result};
use awa_ingest_core::outcome::Outcome;
use pgrx::pg_sys::{self, Datum, Oid, SubTransactionId};
use pgrx::{IntoDatum, pg_guard};
use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::fmt::Write;
use std::rc::Rc;

struct Last {
    /// Where the jobs went; `None` if there were none.
    storage: Option<Storage>,
    outcome: Outcome,
    summary: Summary,
    /// Whose session it was then: another user of a pooled session learns nothing.
    users: (Oid, Oid),
    /// The subtransaction that did it, as long as it can be rolled back.
    open: Cell<Option<SubTransactionId>>,
}

thread_local! {
    /// A cell, never borrowed: transactions also end in the middle of whatever the session is doing, when it is terminated.
    static LAST: Cell<Option<Rc<Last>>> = const { Cell::new(None) };
}

fn last() -> Option<Rc<Last>> {
    let last = LAST.take();
    LAST.set(last.clone());
    last
}

/// What the session's user of now may know.
fn known() -> Option<Rc<Last>> {
    last().filter(|last| last.users == server::session_users())
}

/// A statement begins: should it fail, nobody is to take the one before for it.
pub fn begin() {
    LAST.set(None);
}

/// What is remembered of a statement.
pub struct Kept(Rc<Last>);

/// Keeps the outcome of a statement.
pub fn remember(storage: Option<Storage>, outcome: Outcome, summary: Summary) -> Kept {
    settings::note_last_ingest();
    let users = server::session_users();
    // SAFETY: called inside a transaction.
    let open = Some(unsafe { pg_sys::GetCurrentSubTransactionId() });
    let last = Rc::new(Last { storage, outcome, summary, users, open: Cell::new(open) });
    LAST.set(Some(Rc::clone(&last)));
    Kept(last)
}

/// Keeps a statement's outcome instead of what its triggers enqueued since.
pub fn restore(kept: Kept) {
    LAST.set(Some(kept.0));
}

/// `awa.last_ingest`: a row `(ord, job_id, conflicts_with)` for each job of the last statement, in input order. Raises 54000 if that
/// was too much to remember.
pub fn last_ingest(call: &Call) -> Result<Option<Datum>> {
    let mut rows = call.rows();
    let Some(last) = known() else { return Ok(None) };
    for fate in last.outcome.fates().ok_or(Error::OutcomeForgotten)? {
        rows.put([Some(fate.ord), fate.job_id, fate.conflicts_with].map(IntoDatum::into_datum));
        if fate.ord % 4096 == 0 {
            pgrx::check_for_interrupts!();
        }
    }
    Ok(None)
}

/// `awa.last_ingest_summary`: one row about the last statement, or none.
pub fn last_ingest_summary(call: &Call) -> Result<Option<Datum>> {
    let mut rows = call.rows();
    let Some(last) = known() else { return Ok(None) };
    let Last { outcome, summary, .. } = &*last;
    let (enqueued, skipped) = outcome.counts();
    rows.put([
        (summary.jobs as i64).into_datum(),
        enqueued.into_datum(),
        skipped.into_datum(),
        (summary.deferred as i64).into_datum(),
        (summary.lanes as i32).into_datum(),
        outcome.ranges().map(|ranges| multirange(&ranges)),
        interval(summary.elapsed),
        interval(summary.writing),
        interval(summary.lane_lock_wait),
        interval(summary.lane_hold),
    ]);
    Ok(None)
}

/// `awa_ingest.last_ingest_jobs`: a row of `awa.jobs` for each job that the last statement enqueued, in input order: as they were
/// enqueued, or on the canonical engine as they are now. Jobs whose rows are pruned or deleted are missing.
///
/// Raises 54000 if that was too much to remember, 55000 if they went into the embedded storage. Needs SELECT on the storage's jobs.
pub fn last_ingest_jobs(call: &Call) -> Result<Option<Datum>> {
    RowType::of(call)?;
    let mut rows = call.rows();
    let Some(last) = known() else { return Ok(None) };
    let Some(storage) = &last.storage else { return Ok(None) };
    let (statement, touched) = match (storage.mode, storage.engine) {
        (Mode::Embedded, _) => return Err(Error::NotInAwa),
        (Mode::Attached, Engine::QueueStorage) => (Statement::StoredJobs, Touched::tables(&["ready_entries", "deferred_jobs"])),
        (Mode::Attached, Engine::Canonical) => (Statement::CanonicalJobs, Touched::tables(&["jobs_hot", "scheduled_jobs"])),
    };
    let (first, last): (Vec<i64>, Vec<i64>) = last.outcome.ranges().ok_or(Error::OutcomeForgotten)?.into_iter().unzip();
    spi::connect(|session| {
        let arguments = [argument(first), argument(last)];
        authority::read(storage, touched, || rows.take(session.open(statement, &storage.target, &arguments)))
    })?;
    Ok(None)
}

/// Ranges with both ends, as `int8multirange`.
fn multirange(ranges: &[(i64, i64)]) -> Datum {
    let mut text = String::from("{");
    for (first, last) in ranges {
        let comma = if text.len() > 1 { "," } else { "" };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}[{first},{last}]");
    }
    let text = CString::new(text + "}").unwrap_or_default();
    // SAFETY: the input function of the type, with a C string.
    unsafe {
        let (mut function, mut parameter) = (pg_sys::Oid::INVALID, pg_sys::Oid::INVALID);
        pg_sys::getTypeInputInfo(pg_sys::INT8MULTIRANGEOID, &mut function, &mut parameter);
        pg_sys::OidInputFunctionCall(function, text.as_ptr().cast_mut(), parameter, -1)
    }
}

/// Has the server tell when transactions and subtransactions end.
pub fn watch_transactions() {
    // SAFETY: the callbacks have the wanted signatures, raise nothing, and stay loaded as long as the process.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction_ends), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(subtransaction_ends), std::ptr::null_mut());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn transaction_ends(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    match event {
        // What becomes of a prepared transaction is not this session's to know.
        pg_sys::XactEvent::XACT_EVENT_ABORT | pg_sys::XactEvent::XACT_EVENT_PREPARE => forget(|_| true),
        pg_sys::XactEvent::XACT_EVENT_COMMIT => {
            last().inspect(|last| last.open.set(None));
        }
        _ => {}
    }
}

/// A subtransaction takes those with it that began within it, and they have larger ids.
#[pg_guard]
unsafe extern "C-unwind" fn subtransaction_ends(
    event: pg_sys::SubXactEvent::Type,
    own: SubTransactionId,
    _parent: SubTransactionId,
    _argument: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        forget(|open| open >= own);
    }
}

fn forget(is_gone: impl Fn(SubTransactionId) -> bool) {
    if last().is_some_and(|last| last.open.get().is_some_and(is_gone)) {
        LAST.set(None);
    }
}
