//! The public functions that enqueue: each takes its arguments apart into drafts. Names, types and defaults are declared in
//! `sql/install/functions.sql`; semantics are the specification's, section 2.
#![allow(unsafe_code)]

use crate::arguments::{Columns, ENQUEUE_POSITIONS, text_array};
use crate::entry::Call;
use crate::ingest::{Ingest, OnConflict};
use crate::input;
use crate::json::{self, Form};
use crate::memory::RowMemory;
use crate::results::{ResultRows, SingleId};
use awa_ingest_core::decode;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::{Draft, RunAt};
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::unique::Uniqueness;
use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

/// `awa.enqueue`: one job from arguments, NULL meaning the default. Returns the id, and NULL for a job that was skipped.
///
/// Raises 23505 if the unique key is taken, unless told to skip, and the errors of a single job with ordinal 1. Needs what
/// `awa_ingest.grant_producer` grants.
pub fn enqueue(call: &Call) -> Result<Option<Datum>> {
    let integer = |index| call.integer(index).map(i64::from);
    single(call, Draft { args: call.jsonb(1)?, metadata: call.jsonb(6)?, ..numbers(integer) })
}

/// The same for JSON as text and numbers as bigint.
pub fn enqueue_text(call: &Call) -> Result<Option<Datum>> {
    let bigint = |index| call.bigint(index);
    single(call, Draft { args: json_text(call, 1, "args")?, metadata: json_text(call, 6, "metadata")?, ..numbers(bigint) })
}

fn numbers(argument: impl Fn(usize) -> Option<i64>) -> Draft<'static> {
    Draft { priority: argument(3), max_attempts: argument(4), ..Draft::default() }
}

fn json_text<'c>(call: &'c Call, index: usize, key: &'static str) -> Result<Option<Value<'c>>> {
    // SAFETY: declared as json_text, which is stored as text; arguments outlive the call.
    let read = |datum| unsafe { Form::Text.read(datum, 1, key) };
    call.argument(index).map(read).transpose().map_err(|fault| fault.at(1))
}

/// Enqueues the job of which `draft` has what the two functions take in different types.
fn single<'c>(call: &'c Call, draft: Draft<'c>) -> Result<Option<Datum>> {
    let mut ingest = Ingest::new(on_conflict(call, 10)?, SingleId::default())?;
    let mut buffer = Vec::new();
    let tags = text_array(call.argument(7), &mut buffer).map_err(|fault| fault.at(1))?;
    let uniqueness = json::uniqueness(call, 8)?.map_or(Ok(None), Uniqueness::from_json);
    let ordering_key = call.text(9)?.map(decode::bytes).transpose();
    ingest.add(Ok(Draft {
        kind: call.text(0)?,
        queue: call.text(2)?,
        state: None,
        run_at: call.argument(5).map(|datum| RunAt::Micros(datum.value() as i64)),
        tags,
        unique: uniqueness.map_err(|fault| fault.at(1))?,
        ordering_key: ordering_key.map_err(|fault| fault.at(1))?,
        ..draft
    }))?;
    let (id, _) = ingest.finish()?;
    Ok(id.0.into_datum())
}

/// `awa.enqueue_batch`: jobs from a JSON array of job objects. One row `(ord, job_id, conflicts_with)` a job, in input order.
///
/// Raises 22023 for anything but an array, the errors of single jobs with their ordinals, and 23505 for a taken key unless told to
/// skip. Needs what `awa_ingest.grant_producer` grants.
pub fn enqueue_batch(call: &Call) -> Result<Option<Datum>> {
    let on_conflict = on_conflict(call, 1)?;
    let rows = call.rows();
    call.jsonb(0)?.map_or(Ok(None), |jobs| batch(jobs, on_conflict, rows))
}

/// The same for an array as text. Raises also what `jsonb_in` raises, with a hint where the array is too large.
pub fn enqueue_batch_text(call: &Call) -> Result<Option<Datum>> {
    let on_conflict = on_conflict(call, 1)?;
    let rows = call.rows();
    let Some(text) = call.text(0)? else { return Ok(None) };
    batch(Value::root(input::request(text)?)?, on_conflict, rows)
}

fn batch(jobs: Value<'_>, on_conflict: OnConflict, rows: ResultRows) -> Result<Option<Datum>> {
    let Value::Array(jobs) = jobs else { return Err(Error::NotAnArray) };
    let mut ingest = Ingest::new(on_conflict, rows)?;
    for job in jobs.elements()? {
        ingest.add(job.map_err(Fault::from).and_then(decode::object))?;
    }
    ingest.finish()?;
    Ok(None)
}

/// `awa.enqueue_columns`: jobs from parallel arrays, each NULL, of one element for all jobs, or of one element a job; a NULL
/// element means the default. Rows and errors as for `awa.enqueue_batch`; 22023 if the arrays do not fit together.
pub fn enqueue_columns(call: &Call) -> Result<Option<Datum>> {
    let on_conflict = on_conflict(call, 11)?;
    let mut columns = Columns::open(call, ENQUEUE_POSITIONS)?;
    let mut ingest = Ingest::new(on_conflict, call.rows())?;
    // Arguments that arrive as text are read job by job.
    let mut memory = RowMemory::new();
    for _ in 0..columns.jobs() {
        memory.of_row(|| ingest.add(columns.next_draft()).map(drop))?;
    }
    memory.close();
    ingest.finish()?;
    Ok(None)
}

/// The policy that an argument names.
pub fn on_conflict(call: &Call, index: usize) -> Result<OnConflict> {
    call.text(index)?.map_or(Ok(OnConflict::Error), OnConflict::parse)
}
