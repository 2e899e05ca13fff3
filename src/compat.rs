//! `awa.insert_job_compat`, the function that awa's clients call once a job, where it is replaced. Semantics are awa 0.6.9's, errors and result
//! row as well; the stored payload is awa's compact one.

use crate::arguments::{self, text_array};
use crate::before_commit;
use crate::datum::Arena;
use crate::entry::Call;
use crate::ingest_stats;
use crate::jobs::{self, Row, RowType};
use crate::lane_check;
use crate::seen::Seen;
use crate::server;
use crate::single::{self, Single};
use crate::spi::{self, View};
use crate::statements::Statement;
use crate::storage::{Engine, Mode, Storage};
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::{Draft, Job, RunAt};
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::unique::{StateMask, Uniqueness};
use awa_ingest_core::workable;
use pgrx::pg_sys::{self, Datum};
use std::borrow::Cow;

/// Where the arguments stand.
const KIND: usize = 0;
const QUEUE: usize = 1;
const ARGS: usize = 2;
const STATE: usize = 3;
const PRIORITY: usize = 4;
const MAX_ATTEMPTS: usize = 5;
const RUN_AT: usize = 6;
const METADATA: usize = 7;
const TAGS: usize = 8;
const UNIQUE_KEY: usize = 9;
const UNIQUE_STATES: usize = 10;
const ORDERING_KEY: usize = 11;

/// `awa.insert_job_compat`: one job from awa's twelve arguments, NULL meaning the default. Returns its row.
///
/// Raises what awa's function raises: 23514 for limits, 22023 for a state that no new job has, 23502 without a kind, 23505 for a taken key;
/// and refuses what awa's workers cannot read. Needs the rights that awa's function needs.
pub fn insert_job_compat(call: &Call) -> Result<Option<Datum>> {
    let seen = Seen::now().map_err(|error| match error {
        Error::UnknownStorage(what) => Error::Misfit(what),
        error => error,
    })?;
    if seen.storage.mode == Mode::Embedded {
        return Err(Error::NoAwa);
    }
    let state = call.argument(STATE).map_or_else(|| "available".into(), arguments::enum_name);
    let row = match seen.storage.engine {
        Engine::Canonical => into_canonical(call, &seen.storage, &state)?,
        Engine::QueueStorage => into_queue_storage(call, &seen, &state)?,
    };
    Ok(Some(row))
}

/// What the arguments ask for, but for the values that only SQL can make of them.
fn draft<'c>(call: &'c Call, state: &'c str, tags: Option<Value<'c>>, states: Option<&str>) -> Result<Draft<'c>> {
    if let Some(states) = states.filter(|states| states.len() != 8) {
        return Err(Error::BitLength(states.len()));
    }
    // awa's function takes keys of any length, as far as the index does.
    let states = states.map(StateMask::from_bits).transpose().map_err(|fault| fault.at(1))?;
    let unique = call.bytes(UNIQUE_KEY).map(|key| Uniqueness::Given { key: Cow::Borrowed(key), states });
    Ok(Draft {
        kind: call.text(KIND)?,
        queue: call.text(QUEUE)?,
        args: call.jsonb(ARGS)?,
        state: Some(state),
        priority: call.smallint(PRIORITY).map(i64::from),
        max_attempts: call.smallint(MAX_ATTEMPTS).map(i64::from),
        run_at: run_at(call).map(RunAt::Micros),
        metadata: call.jsonb(METADATA)?.filter(|metadata| !is_odd(metadata)),
        tags,
        unique,
        ordering_key: call.bytes(ORDERING_KEY).map(Cow::Borrowed),
    })
}

fn run_at(call: &Call) -> Option<i64> {
    call.argument(RUN_AT).map(|datum| datum.value() as i64)
}

/// awa takes any JSON for metadata.
fn is_odd(metadata: &Value<'_>) -> bool {
    !matches!(metadata, Value::Object(_) | Value::Null)
}

fn into_queue_storage(call: &Call, seen: &Seen, state: &str) -> Result<Datum> {
    let fault = |fault: Fault| fault.at(1);
    let mut buffer = Vec::new();
    let (tags, odd_tags) = match text_array(call.argument(TAGS), &mut buffer) {
        Ok(tags) => (tags, false),
        Err(Fault::WrongType(..)) => (None, true),
        Err(other) => return Err(fault(other)),
    };
    if let Some(count) = call.argument(TAGS).map(arguments::cardinality).filter(|count| odd_tags && *count > 20) {
        return Err(fault(Fault::TagCount(count)));
    }
    let states = call.argument(UNIQUE_STATES).map(arguments::bits);
    let job = draft(call, state, tags, states.as_deref())?.validate_as_awa().map_err(fault)?;
    workable::check(&job, run_at(call)).map_err(fault)?;
    workable::check_age(&job, run_at(call), server::clock()).map_err(fault)?;
    let odd_metadata = call.jsonb(METADATA)?.is_some_and(|metadata| is_odd(&metadata));

    let mut arena = Arena::default();
    let (queue, shard) = single::route(seen, &job)?;
    let stored = arena.bytes(queue.as_bytes());
    let empty = arena.jsonb(&Value::EMPTY_OBJECT);
    let states = states.map(|states| arena.bytes(states.as_bytes()));
    let mut payload = Vec::new();
    job.payload(&mut payload);
    let payload = (!payload.is_empty()).then(|| arena.bytes(&payload));
    let empty = Some(arena.datum(empty));
    let single = Single {
        kind: call.argument(KIND),
        queue: Some(arena.datum(stored)),
        args: call.argument(ARGS).or(empty),
        unique_key: call.argument(UNIQUE_KEY),
        unique_states: states.map(|states| arena.datum(states)),
        payload: match odd_metadata || odd_tags {
            false => payload.map(|payload| arena.datum(payload)),
            true => odd_payload(&seen.storage, call.argument(METADATA).or(empty), call.argument(TAGS)),
        },
    };
    let written = single::write(&seen.storage, &job, &queue, shard, run_at(call), &single)?;
    let state = match call.argument(STATE) {
        None => RowType::of(call)?.state(c"available"),
        given => given,
    };
    Ok(RowType::of(call)?.form(row(call, &job, &single, &written, state, empty)))
}

/// The row as awa's function returns it.
fn row(call: &Call, job: &Job<'_>, single: &Single, written: &single::Written, state: Option<Datum>, empty: Option<Datum>) -> Row {
    let zero = Some(Datum::from(0));
    let mut row = [None; jobs::WIDTH];
    row[..9].copy_from_slice(&[
        Some(Datum::from(written.job_id)),
        single.kind,
        single.queue,
        single.args,
        state,
        Some(Datum::from(job.priority)),
        zero,
        Some(Datum::from(job.max_attempts)),
        Some(Datum::from(written.run_at)),
    ]);
    row[13..19].copy_from_slice(&[
        Some(Datum::from(written.created_at)),
        Some(jobs::empty_array(pg_sys::JSONBOID)),
        call.argument(METADATA).or(empty),
        Some(call.argument(TAGS).unwrap_or_else(|| jobs::empty_array(pg_sys::TEXTOID))),
        single.unique_key,
        call.argument(UNIQUE_STATES),
    ]);
    row[25] = zero;
    row
}

fn odd_payload(storage: &Storage, metadata: Option<Datum>, tags: Option<Datum>) -> Option<Datum> {
    let tags = tags.or_else(|| Some(jobs::empty_array(pg_sys::TEXTOID)));
    spi::connect(|session| {
        session.query(Statement::Payload, &storage.target, &[metadata, tags], View::Caller, |rows| rows.datum(0, 0))
    })
}

/// The canonical engine takes every state, and its triggers do the rest.
fn into_canonical(call: &Call, storage: &Storage, state: &str) -> Result<Datum> {
    let tags = call.argument(TAGS);
    if let Some(count) = tags.map(arguments::cardinality).filter(|count| *count > 20) {
        return Err(Fault::TagCount(count).at(1));
    }
    let states = call.argument(UNIQUE_STATES).map(arguments::bits);
    let job = draft(call, "available", None, states.as_deref())?.validate_as_awa().map_err(|fault| fault.at(1))?;
    workable::check(&job, run_at(call)).map_err(|fault| fault.at(1))?;

    let mut arena = Arena::default();
    let (queue, empty) = (arena.bytes(job.queue.as_bytes()), arena.jsonb(&Value::EMPTY_OBJECT));
    let name = arena.bytes(state.as_bytes());
    let empty = Some(arena.datum(empty));
    let arguments = [
        call.argument(KIND),
        Some(arena.datum(queue)),
        call.argument(ARGS).or(empty),
        Some(arena.datum(name)),
        Some(Datum::from(job.priority)),
        Some(Datum::from(job.max_attempts)),
        call.argument(RUN_AT),
        call.argument(METADATA).or(empty),
        Some(tags.unwrap_or_else(|| jobs::empty_array(pg_sys::TEXTOID))),
        call.argument(UNIQUE_KEY),
        call.argument(UNIQUE_STATES),
    ];
    let statement = match state {
        "scheduled" | "retryable" => Statement::CanonicalScheduledJob,
        _ => Statement::CanonicalHotJob,
    };
    before_commit::remember(storage, None);
    let row = spi::connect(|session| {
        lane_check::explained(storage, || {
            session.query(statement, &storage.target, &arguments, View::Write, |rows| {
                (rows.count == 1).then(|| std::array::from_fn(|column| rows.datum(0, column as i32)))
            })
        })
    });
    let row = row.ok_or_else(|| Error::RowsLeftOut("jobs_hot or scheduled_jobs".into(), 1))?;
    if ingest_stats::is_on() {
        ingest_stats::count_job(storage, job.queue, bytes(call, &job), None);
    }
    Ok(RowType::of(call)?.form(row))
}

/// Bytes of the canonical engine's job, whose tags are not in `job`. Tags that are no list of strings are left out.
fn bytes(call: &Call, job: &Job<'_>) -> u64 {
    let (mut buffer, mut payload) = (Vec::new(), Vec::new());
    let tags = text_array(call.argument(TAGS), &mut buffer).ok().flatten();
    let tagged = draft(call, "available", tags, None).and_then(|draft| draft.validate_as_awa().map_err(|fault| fault.at(1)));
    tagged.as_ref().unwrap_or(job).payload(&mut payload);
    job.bytes(job.queue, &payload)
}
