//! The public functions that enqueue: each takes its arguments apart into drafts. Names, types and defaults are declared in
//! `sql/install/functions.sql`; semantics are the specification's, section 2.

use crate::arguments::{Columns, ENQUEUE_POSITIONS, text_array};
use crate::entry::Call;
use crate::ingest::{Ingest, OnConflict};
use crate::results::SingleId;
use awa_ingest_core::decode;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::{Draft, RunAt};
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::unique::Uniqueness;
use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

/// `awa.enqueue`: one job from arguments, NULL meaning the default. Returns the id.
///
/// Raises 23505 if the unique key is taken, and the errors of a single job with ordinal 1. Needs what `awa_ingest.grant_producer`
/// grants.
pub fn enqueue(call: &Call) -> Result<Option<Datum>> {
    let mut ingest = Ingest::new(OnConflict::Error, SingleId::default())?;
    let mut buffer = Vec::new();
    let tags = text_array(call.argument(7), &mut buffer).map_err(|fault| fault.at(1))?;
    ingest.add(Ok(single(call, tags)?))?;
    let (id, _) = ingest.finish()?;
    Ok(id.0.into_datum())
}

fn single<'c>(call: &'c Call, tags: Option<Value<'c>>) -> Result<Draft<'c>> {
    let uniqueness = call.jsonb(8)?.map_or(Ok(None), Uniqueness::from_json);
    let ordering_key = call.text(9)?.map(decode::bytes).transpose();
    Ok(Draft {
        kind: call.text(0)?,
        args: call.jsonb(1)?,
        queue: call.text(2)?,
        state: None,
        priority: call.smallint(3).map(i64::from),
        max_attempts: call.smallint(4).map(i64::from),
        run_at: call.argument(5).map(|datum| RunAt::Micros(datum.value() as i64)),
        metadata: call.jsonb(6)?,
        tags,
        unique: uniqueness.map_err(|fault| fault.at(1))?,
        ordering_key: ordering_key.map_err(|fault| fault.at(1))?,
    })
}

/// `awa.enqueue_batch`: jobs from a JSON array of job objects. One row `(ord, job_id, conflicts_with)` a job, in input order.
///
/// Raises 22023 for anything but an array, the errors of single jobs with their ordinals, and 23505 for a taken key unless told to
/// skip. Needs what `awa_ingest.grant_producer` grants.
pub fn enqueue_batch(call: &Call) -> Result<Option<Datum>> {
    let on_conflict = on_conflict(call, 1)?;
    let rows = call.rows();
    let jobs = match call.jsonb(0)? {
        None => return Ok(None),
        Some(Value::Array(jobs)) => jobs,
        Some(_) => return Err(Error::NotAnArray),
    };
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
    for _ in 0..columns.jobs() {
        ingest.add(columns.next_draft())?;
    }
    ingest.finish()?;
    Ok(None)
}

/// The policy that an argument names.
pub fn on_conflict(call: &Call, index: usize) -> Result<OnConflict> {
    call.text(index)?.map_or(Ok(OnConflict::Error), OnConflict::parse)
}
