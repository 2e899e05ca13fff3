//! `awa_ingest.adopt()`: moves the jobs that wait in the embedded storage into awa's.
#![allow(unsafe_code)]

use crate::authority;
use crate::datum;
use crate::entry::Call;
use crate::functions::on_conflict;
use crate::ingest::{Ingest, OnConflict, Place};
use crate::memory::RowMemory;
use crate::results::{self, Results};
use crate::server;
use crate::settings;
use crate::spi::{self, Rows, Session, argument};
use crate::spool::{Column, Store};
use crate::statements::{Statement, Target};
use crate::storage::{Engine, Mode};
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::{Draft, RunAt};
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::unique::Uniqueness;
use awa_ingest_core::workable;
use pgrx::IntoDatum;
use pgrx::pg_sys::{self, Datum};
use std::borrow::Cow;

const ADOPTED: [Column; 2] = [(c"ord", pg_sys::INT8OID), (c"job_id", pg_sys::INT8OID)];
const LEFT: [Column; 1] = [(c"ord", pg_sys::INT8OID)];

/// `awa_ingest.adopt`: one row `(ready, deferred, skipped)`, counts of jobs moved and left. Keeps the order of lanes and of ids, `run_at` and
/// unique keys; an enqueue that is under way is waited for. An available job that is due more than 22 days from now is due now in awa's lanes.
///
/// Raises 55000 without awa, 23505 for a key that a job of awa holds (unless told to skip: such jobs stay), and the errors of single jobs
/// for those that awa's workers cannot take. Needs the rights of the embedded storage's owner, and those of a producer.
pub fn adopt(call: &Call) -> Result<Option<Datum>> {
    let on_conflict = on_conflict(call, 0)?;
    // Formed where the result outlives the connection.
    let counts = spi::connect(|session| move_all(session, on_conflict))?;
    Ok(Some(results::record(call, counts.map(IntoDatum::into_datum))))
}

/// Returns how many jobs became ready and deferred ones of awa, and how many stay.
fn move_all(session: &Session, on_conflict: OnConflict) -> Result<[i64; 3]> {
    let storage = authority::resolve_to_read(session)?;
    if storage.mode != Mode::Attached {
        return Err(Error::NoAwa);
    }
    // What is read is the caller's; what is written there may be the code of another role.
    let writer = authority::writer(&storage)?;
    session.run(Statement::LockEmbedded, &Target::none(), &[]);
    let mut ingest = authority::act_as_if(writer, || Ingest::new(on_conflict, Left::new()))?.uncounted();
    let mut adopted = Store::new(c"awa_ingest_adopted", &ADOPTED, settings::segment_memory());
    let mut waiting = session.open(Statement::Waiting, &Target::none(), &[argument(ingest.storage().ids()?)]);
    let (mut ord, mut stale) = (0, 0);
    // Large args are read out of line, one row's at a time.
    let mut memory = RowMemory::new();
    loop {
        let read = waiting.fetch(|rows| -> Result<usize> {
            authority::act_as_if(writer, || {
                for row in 0..rows.count {
                    ord += 1;
                    adopted.put([Some(Datum::from(ord)), rows.get::<i64>(row, 0).into_datum()]);
                    stale += u64::from(memory.of_row(|| add(&mut ingest, rows, row))?);
                }
                Ok(rows.count)
            })
        })?;
        if read == 0 {
            break;
        }
    }
    waiting.close();
    memory.close();
    if stale > 0 {
        pgrx::notice!(
            "{stale} available jobs were due more than 22 days from now: they are due now, since awa cannot reckon their age"
        );
    }
    let (left, summary) = authority::act_as_if(writer, || ingest.finish())?;
    remove(session, &adopted, &left);
    let (skipped, deferred) = (left.count, summary.deferred as i64);
    adopted.close();
    left.store.close();
    Ok([ord - skipped - deferred, deferred, skipped])
}

/// Whether the job is due now in its new place.
fn add(ingest: &mut Ingest<Left>, rows: &Rows, row: usize) -> Result<bool> {
    // SAFETY: datums of the statement's columns, in place while the rows are read.
    let (bytes, text, json) = unsafe {
        (
            |column| rows.raw(row, column).map(|datum| datum::bytes(datum)),
            |column| rows.raw(row, column).map(|datum| datum::text(datum)).transpose(),
            |column| rows.raw(row, column).map(|datum| datum::json(datum)).transpose(),
        )
    };
    let run_at = rows.raw(row, 8).map(|datum| datum.value() as i64);
    // awa cannot reckon the age of a job that has waited so long: it is due now, as one that awa promotes.
    let is_stale = ingest.storage().engine == Engine::QueueStorage
        && rows.get(row, 5).is_some_and(|state: &str| state == "available")
        && run_at.is_some_and(|run_at| ![i64::MIN, i64::MAX].contains(&run_at) && workable::is_far(run_at, server::clock()));
    let draft = || -> std::result::Result<Draft<'_>, Fault> {
        let (mut metadata, mut tags) = (None, None);
        if let Some(Value::Object(payload)) = json(11)? {
            for field in payload.fields()? {
                match field? {
                    ("metadata", value) => metadata = Some(value),
                    ("tags", value) => tags = Some(value),
                    _ => {}
                }
            }
        }
        let states = text(10)?;
        let unique = bytes(9).map(|key| Uniqueness::given_bytes(Cow::Borrowed(key), states)).transpose()?;
        Ok(Draft {
            kind: text(2)?,
            queue: text(3)?,
            args: json(4)?,
            state: text(5)?,
            priority: rows.get::<i16>(row, 6).map(i64::from),
            max_attempts: rows.get::<i16>(row, 7).map(i64::from),
            run_at: (!is_stale).then(|| run_at.map(RunAt::Micros)).flatten(),
            metadata,
            tags,
            unique,
            ordering_key: None,
        })
    };
    let place = Place { job_id: rows.get(row, 1).unwrap_or_default(), shard: rows.get(row, 12).unwrap_or_default() };
    ingest.add_in_place(draft(), place)?;
    Ok(is_stale)
}

/// Removes what was moved from the embedded storage.
fn remove(session: &Session, adopted: &Store<2>, left: &Left) {
    adopted.show(session);
    left.store.show(session);
    let run = |statement| session.run(statement, &Target::none(), &[]);
    run(Statement::AdoptedReady);
    run(Statement::AdoptedDeferred);
    run(Statement::AdoptedClaims);
    run(Statement::DropSegments);
    if left.count > 0 {
        run(Statement::LeftSegments);
    }
}

/// The jobs whose keys awa's jobs hold.
struct Left {
    store: Store<1>,
    count: i64,
}

impl Left {
    fn new() -> Self {
        Self { store: Store::new(c"awa_ingest_left", &LEFT, settings::segment_memory()), count: 0 }
    }
}

impl Results for Left {
    fn enqueued(&mut self, _ord: i64, _job_id: i64) {}

    fn skipped(&mut self, ord: i64, _holder: Option<i64>) {
        self.store.put([Some(Datum::from(ord))]);
        self.count += 1;
    }

    fn restart(&mut self) {
        self.store.clear();
        self.count = 0;
    }
}
