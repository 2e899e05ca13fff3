//! Looks again before a transaction that enqueued commits.
//!
//! A transaction may stay open while the ring makes a whole turn: its jobs would then be in a slot that is used again, and go with that slot's
//! next prune. Or another engine or storage may become active: nobody would work its jobs. Both raise 40001.
//!
//! Between the look and the commit nothing may change that. A ring that is far from a whole turn does not make one meanwhile, and awa has no way
//! back from active queue storage. Otherwise the table that says so is locked until the commit, or until a prepared transaction is
//! finished. The lock is SHARE, which waits for writers and keeps them waiting, and which any number of transactions can hold.
#![allow(unsafe_code)]

use crate::datum;
use crate::report;
use crate::small_table::{self, Row, Unreadable};
use crate::storage::{self, AwaEngine, Engine, Mode, Storage};
use awa_ingest_core::error::{Error, Result};
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::transition::Transition;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid, SubTransactionId};
use std::cell::Cell;
use std::ffi::{CStr, c_void};

/// Where jobs were written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    mode: Mode,
    engine: Engine,
    schema: Oid,
}

/// Ring slot and generation.
type Turn = (i32, i64);

/// Jobs of the transaction.
struct Written {
    place: Place,
    /// The lowest generation that ready jobs were written under.
    turn: Option<Turn>,
    /// The subtransaction that wrote them.
    by: SubTransactionId,
}

thread_local! {
    /// A cell, never borrowed: transactions also end in the middle of whatever the session is doing, when it is terminated.
    static WRITTEN: Cell<Vec<Written>> = const { Cell::new(Vec::new()) };
}

/// Remembers that jobs are written, ready ones in a ring slot.
pub fn remember(storage: &Storage, turn: Option<Turn>) {
    let place = Place { mode: storage.mode, engine: storage.engine, schema: storage.schema_oid };
    let mut written = WRITTEN.take();
    // An entry goes when a subtransaction is rolled back that began before it, and that takes all later entries along. So an earlier one says enough.
    let says_enough =
        |known: &Written| known.place == place && turn.is_none_or(|turn| known.turn.is_some_and(|known| known.1 <= turn.1));
    if !written.iter().any(says_enough) {
        // SAFETY: called inside a transaction.
        written.push(Written { place, turn, by: unsafe { pg_sys::GetCurrentSubTransactionId() } });
    }
    WRITTEN.set(written);
}

/// Raises 40001 where what was written would be lost or stay where it is. `prepares` is for a transaction whose commit comes later.
fn look_again(prepares: bool) -> Result<()> {
    WRITTEN.take().into_iter().try_for_each(|Written { place, turn, .. }| {
        match place.mode {
            Mode::Embedded => check_awa_is_absent()?,
            Mode::Attached => check_engine(place, prepares)?,
        }
        match turn {
            Some(turn) => check_ring(place, turn, prepares),
            None => Ok(()),
        }
    })
}

/// awa's state.
struct State {
    engine: Engine,
    schema: Option<Oid>,
    /// Whether awa has no way back.
    is_settled: bool,
    /// Whether this transaction itself wrote it, and so knows.
    is_own: bool,
}

fn check_awa_is_absent() -> Result<()> {
    match AwaEngine::is_there() && !read_state().is_ok_and(|state| state.is_own) {
        true => Err(Error::StorageLeft),
        false => Ok(()),
    }
}

fn check_engine(place: Place, prepares: bool) -> Result<()> {
    // Locked since the storage was looked up: it can only be gone by this transaction itself.
    let Some(table) = storage::awa_table("storage_transition_state") else { return Ok(()) };
    let mut state = read_state();
    if prepares || !state.as_ref().is_ok_and(|state| state.is_settled) {
        lock(table);
        state = read_state();
    }
    match state {
        Ok(state) if state.is_own || (state.engine, state.schema) == (place.engine, Some(place.schema)) => Ok(()),
        _ => Err(Error::StorageLeft),
    }
}

fn read_state() -> std::result::Result<State, Unreadable> {
    const STATE: [(&CStr, Oid); 5] = [
        (c"singleton", pg_sys::BOOLOID),
        (c"state", pg_sys::TEXTOID),
        (c"current_engine", pg_sys::TEXTOID),
        (c"prepared_engine", pg_sys::TEXTOID),
        (c"details", pg_sys::JSONBOID),
    ];
    let table = storage::awa_table("storage_transition_state").ok_or(Unreadable)?;
    let read = |row: Row<'_, 5>| {
        let [singleton, state, current, prepared, details] = *row.values;
        // SAFETY: datums of the columns' types, in place while the row is read.
        let text = |value: Option<Datum>| value.and_then(|value| unsafe { datum::text(value) }.ok());
        // SAFETY: as above.
        let details = details.and_then(|details| unsafe { datum::json(details) }.ok());
        let transition = Transition {
            state: text(state),
            current: text(current),
            prepared: text(prepared),
            schema: details.as_ref().and_then(schema_of),
        };
        let is_the_one = singleton.is_some_and(|value| value.value() as u8 != 0);
        is_the_one.then(|| state_of(&transition, row.is_own))
    };
    Ok(small_table::first(table, &STATE, read)?.unwrap_or_else(|| state_of(&Transition::default(), false)))
}

fn schema_of<'v>(details: &Value<'v>) -> Option<&'v str> {
    let Value::Object(details) = details else { return None };
    let mut fields = details.fields().ok()?.filter_map(std::result::Result::ok);
    fields.find_map(|field| match field {
        ("schema", Value::String(schema)) => Some(schema),
        _ => None,
    })
}

fn state_of(transition: &Transition<'_>, is_own: bool) -> State {
    let engine = if transition.engine() == "queue_storage" { Engine::QueueStorage } else { Engine::Canonical };
    let backend = if engine == Engine::QueueStorage && transition.schema.is_none_or(str::is_empty) { backend() } else { None };
    let schema = match engine {
        Engine::QueueStorage => transition.schema(backend.as_deref()),
        Engine::Canonical => "awa",
    };
    State { engine, schema: storage::namespace(schema), is_settled: transition.is_settled(), is_own }
}

/// The queue storage schema by awa's other table.
fn backend() -> Option<String> {
    const BACKEND: [(&CStr, Oid); 2] = [(c"backend", pg_sys::TEXTOID), (c"schema_name", pg_sys::TEXTOID)];
    let table = storage::awa_table("runtime_storage_backends")?;
    let read = |row: Row<'_, 2>| {
        // SAFETY: datums of the columns' types, in place while the row is read.
        let [backend, schema] = row.values.map(|value| value.and_then(|value| unsafe { datum::text(value) }.ok()));
        backend.filter(|backend| *backend == "queue_storage").and(schema).map(str::to_owned)
    };
    small_table::first(table, &BACKEND, read).ok().flatten()
}

fn check_ring(place: Place, (slot, generation): Turn, prepares: bool) -> Result<()> {
    // As above; what is no plain table any more cannot be awa's ring.
    let Some(table) = storage::relation("queue_ring_state", place.schema) else { return Ok(()) };
    let Ok(mut ring) = read_ring(table) else { return Ok(()) };
    if prepares || ring.is_some_and(|(now, slots)| now - generation >= slots / 2) {
        lock(table);
        ring = read_ring(table).ok().flatten();
    }
    match ring {
        Some((now, slots)) if now - generation >= slots => Err(Error::RingTurned { slot, generation, now }),
        _ => Ok(()),
    }
}

/// The ring's generation and its number of slots.
fn read_ring(table: Oid) -> std::result::Result<Option<(i64, i64)>, Unreadable> {
    const RING: [(&CStr, Oid); 3] =
        [(c"singleton", pg_sys::BOOLOID), (c"generation", pg_sys::INT8OID), (c"slot_count", pg_sys::INT4OID)];
    let mut newest = None;
    small_table::first(table, &RING, |row| {
        if let [Some(singleton), Some(generation), Some(slots)] = *row.values
            && singleton.value() as u8 != 0
        {
            newest = newest.max(Some((generation.value() as i64, i64::from(slots.value() as i32))));
        }
        None::<()>
    })?;
    Ok(newest)
}

fn lock(table: Oid) {
    // SAFETY: the lock manager takes any oid; the lock goes with the transaction, prepared or not.
    unsafe { pg_sys::LockRelationOid(table, pg_sys::ShareLock as i32) }
}

/// Has the server tell. Deferred triggers have run by then, and what they enqueued is looked at as well.
pub fn watch() {
    // SAFETY: the callbacks have the wanted signatures, and stay loaded as long as the process; an error before the commit is allowed.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction_ends), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(subtransaction_ends), std::ptr::null_mut());
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn transaction_ends(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    let looked = match event {
        pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT => look_again(false),
        pg_sys::XactEvent::XACT_EVENT_PRE_PREPARE => look_again(true),
        _ => {
            drop(WRITTEN.take());
            return;
        }
    };
    if let Err(error) = looked {
        report::raise(error);
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
        let mut written = WRITTEN.take();
        written.retain(|written| written.by < own);
        WRITTEN.set(written);
    }
}
