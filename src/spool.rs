//! The spool: a tuplestore that keeps a call's jobs between the steps, in memory up to `awa_ingest.batch_memory` and in temporary
//! files beyond. Statements see it as a relation, as triggers see their transition tables.
#![allow(unsafe_code)]

use crate::datum::{self, Arena, Offset};
use crate::settings;
use crate::spi::Session;
use awa_ingest_core::job::InitialState;
use awa_ingest_core::jsonb::Value;
use pgrx::PgMemoryContexts;
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::CStr;

/// A column: its name, and its type.
pub type Column = (&'static CStr, Oid);

/// A tuplestore with a fixed set of columns.
pub struct Store<const N: usize> {
    name: &'static CStr,
    memory: pg_sys::MemoryContext,
    /// What owns the files.
    owner: pg_sys::ResourceOwner,
    state: *mut pg_sys::Tuplestorestate,
    descriptor: pg_sys::TupleDesc,
}

impl<const N: usize> Store<N> {
    /// An empty store in the current memory context, which must outlive it.
    pub fn new(name: &'static CStr, columns: &[Column; N], kilobytes: i32) -> Self {
        // SAFETY: descriptor and store are allocated in the current memory context; the names are constants.
        unsafe {
            let descriptor = pg_sys::CreateTemplateTupleDesc(N as i32);
            for (index, (name, kind)) in columns.iter().enumerate() {
                pg_sys::TupleDescInitEntry(descriptor, index as i16 + 1, name.as_ptr(), *kind, -1, 0);
            }
            let state = pg_sys::tuplestore_begin_heap(false, false, kilobytes);
            Self { name, memory: pg_sys::CurrentMemoryContext, owner: pg_sys::CurrentResourceOwner, state, descriptor }
        }
    }

    /// What `make` makes, with memory and files that live as long as this store's, also where a subtransaction is open by now.
    fn beside<T>(&self, make: impl FnOnce() -> T) -> T {
        // SAFETY: context and owner outlive the store. An error in between ends the subtransaction, which puts its parent's owner back.
        unsafe {
            let current = pg_sys::CurrentResourceOwner;
            pg_sys::CurrentResourceOwner = self.owner;
            let made = PgMemoryContexts::For(self.memory).switch_to(|_| make());
            pg_sys::CurrentResourceOwner = current;
            made
        }
    }

    /// Makes the store visible to the session's statements under its name, in place of an earlier one.
    pub fn show(&self, session: &Session) {
        // SAFETY: store and descriptor live until `close`, which takes the store.
        unsafe { session.register(self.name, self.descriptor, self.state) }
    }

    /// Appends a row; `None` is NULL.
    pub fn put(&mut self, row: [Option<Datum>; N]) {
        let mut values = row.map(|value| value.unwrap_or(Datum::from(0)));
        let mut nulls = row.map(|value| value.is_none());
        // SAFETY: the row has the descriptor's columns; the callers below give each its type. The store copies the values.
        unsafe { pg_sys::tuplestore_putvalues(self.state, self.descriptor, values.as_mut_ptr(), nulls.as_mut_ptr()) }
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        // SAFETY: the store is open, and nothing reads it.
        unsafe { pg_sys::tuplestore_clear(self.state) }
    }

    /// Whether rows went to a file.
    pub fn is_spilled(&self) -> bool {
        // SAFETY: the store is open.
        unsafe { !pg_sys::tuplestore_in_memory(self.state) }
    }

    /// Gives back memory and files. Not a `Drop`: while an error unwinds, the transaction's end does this.
    pub fn close(self) {
        // SAFETY: nothing reads the store any more; statements over it are finished, and cursors closed.
        unsafe { pg_sys::tuplestore_end(self.state) }
    }

    /// Reads all rows from the first.
    pub fn scan(&self, mut each: impl FnMut([Option<Datum>; N])) {
        // SAFETY: pointer 0 is the store's own; the slot is of the kind that tuplestores fill, and a row's datums are used only
        // before the next is fetched.
        unsafe {
            pg_sys::tuplestore_select_read_pointer(self.state, 0);
            pg_sys::tuplestore_rescan(self.state);
            let slot = pg_sys::MakeSingleTupleTableSlot(self.descriptor, &raw const pg_sys::TTSOpsMinimalTuple);
            loop {
                // A cursor that `each` reads from may have chosen its own pointer.
                pg_sys::tuplestore_select_read_pointer(self.state, 0);
                if !pg_sys::tuplestore_gettupleslot(self.state, true, false, slot) {
                    break;
                }
                pg_sys::slot_getsomeattrs_int(slot, N as i32);
                let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
                each(std::array::from_fn(|at| if *nulls.add(at) { None } else { Some(*values.add(at)) }));
                pgrx::check_for_interrupts!();
            }
            pg_sys::ExecDropSingleTupleTableSlot(slot);
        }
    }
}

const SPOOL: &CStr = c"awa_ingest_spool";
const SPOOL_COLUMNS: [Column; 16] = [
    (c"ord", pg_sys::INT8OID),
    (c"job_id", pg_sys::INT8OID),
    (c"kind", pg_sys::TEXTOID),
    (c"queue", pg_sys::TEXTOID),
    (c"args", pg_sys::JSONBOID),
    (c"state", pg_sys::TEXTOID),
    (c"priority", pg_sys::INT2OID),
    (c"max_attempts", pg_sys::INT2OID),
    (c"run_at", pg_sys::TIMESTAMPTZOID),
    (c"payload", pg_sys::JSONBOID),
    (c"unique_key", pg_sys::BYTEAOID),
    (c"unique_states", pg_sys::TEXTOID),
    (c"claims", pg_sys::BOOLOID),
    (c"shard", pg_sys::INT2OID),
    (c"lane", pg_sys::INT4OID),
    (c"position", pg_sys::INT8OID),
];
/// Columns that are read back.
const ORD: usize = 0;
const JOB_ID: usize = 1;
const KIND: usize = 2;
const QUEUE: usize = 3;
const ARGS: usize = 4;
const STATE: usize = 5;
const RUN_AT: usize = 8;
const PAYLOAD: usize = 9;
const UNIQUE_KEY: usize = 10;
const LANE: usize = 14;
const POSITION: usize = 15;

/// A job as it is spooled.
pub struct Spooled<'a> {
    /// Place in the request, from 1.
    pub ord: i64,
    /// Its id.
    pub job_id: i64,
    /// Stored queue name.
    pub queue: &'a str,
    /// The job; its queue is the logical one.
    pub job: &'a awa_ingest_core::job::Job<'a>,
    /// `None` for the call's clock.
    pub run_at: Option<i64>,
    /// Whether its key is still to be taken.
    pub claims: bool,
    /// Shard of its queue.
    pub shard: i16,
    /// Lane (from 0) and position behind the lane's start; `None` for deferred jobs.
    pub place: Option<(usize, i64)>,
}

/// The jobs of a call.
pub struct Spool {
    store: Store<16>,
    arena: Arena,
    payload: Vec<u8>,
}

impl Spool {
    /// An empty spool in the current memory context, with room left for another if there may be one.
    pub fn new(twice: bool) -> Self {
        Self {
            store: Store::new(SPOOL, &SPOOL_COLUMNS, settings::spool_memory(twice)),
            arena: Arena::default(),
            payload: Vec::new(),
        }
    }

    /// An empty spool that lives as long as this one.
    pub fn successor(&self) -> Self {
        self.store.beside(|| Self::new(true))
    }

    /// Makes the spool visible to statements, in place of an earlier one.
    pub fn show(&self, session: &Session) {
        self.store.show(session);
    }

    /// Whether jobs went to a file.
    pub fn is_spilled(&self) -> bool {
        self.store.is_spilled()
    }

    /// Gives back memory and files.
    pub fn close(self) {
        self.store.close();
    }

    /// Appends a job. Returns its bytes, as [`awa_ingest_core::job::Job::bytes`] has them.
    pub fn put(&mut self, row: &Spooled<'_>) -> u64 {
        let job = row.job;
        let arena = &mut self.arena;
        arena.clear();
        let kind = arena.bytes(job.kind.as_bytes());
        let queue = arena.bytes(row.queue.as_bytes());
        let args = match &job.args {
            Some(args) => arena.jsonb(args),
            None => arena.jsonb(&Value::EMPTY_OBJECT),
        };
        let state = arena.bytes(job.state.name().as_bytes());
        job.payload(&mut self.payload);
        let payload = (!self.payload.is_empty()).then(|| arena.bytes(&self.payload));
        let key = job.unique.as_ref().map(|unique| arena.bytes(&unique.key));
        let states = job.unique.as_ref().and_then(|unique| unique.states).map(|states| arena.bytes(&states.text()));
        let datum = |offset: Offset| self.arena.datum(offset);
        self.store.put([
            Some(Datum::from(row.ord)),
            Some(Datum::from(row.job_id)),
            Some(datum(kind)),
            Some(datum(queue)),
            Some(datum(args)),
            Some(datum(state)),
            Some(Datum::from(job.priority)),
            Some(Datum::from(job.max_attempts)),
            row.run_at.map(Datum::from),
            payload.map(datum),
            key.map(datum),
            states.map(datum),
            Some(Datum::from(row.claims)),
            Some(Datum::from(row.shard)),
            row.place.map(|(lane, _)| Datum::from(lane as i32 + 1)),
            row.place.map(|(_, position)| Datum::from(position)),
        ]);
        job.bytes(row.queue, &self.payload)
    }

    /// Calls `each` with every job that is ready, in input order.
    pub fn ready(&self, mut each: impl FnMut(&Ready)) {
        self.store.scan(|row| {
            let [
                _,
                job_id,
                kind,
                queue,
                args,
                _,
                priority,
                max_attempts,
                run_at,
                payload,
                unique_key,
                unique_states,
                _,
                shard,
                lane,
                _,
            ] = row;
            if let Some(lane) = lane {
                let (lane, position) = (lane.value() - 1, integer(row[POSITION]));
                each(&Ready {
                    job_id,
                    kind,
                    queue,
                    args,
                    priority,
                    max_attempts,
                    run_at,
                    payload,
                    unique_key,
                    unique_states,
                    shard,
                    lane,
                    position,
                });
            }
        });
    }

    /// Appends the jobs of `other` that `place` keeps, in their order: it returns the job's new position in its lane, or `None` to
    /// leave the job out. For jobs without a lane any position keeps them.
    pub fn take(&mut self, other: &Spool, mut place: impl FnMut(Waiting<'_>) -> Option<i64>) {
        other.store.scan(|mut row| {
            let lane = row[LANE].map(|lane| lane.value() - 1);
            let run_at = row[RUN_AT].map(|run_at| run_at.value() as i64);
            // SAFETY: texts, jsonbs and byteas that the spool wrote.
            let value = |column: usize| row[column].map_or(&[][..], |value| unsafe { datum::bytes(value) });
            let available = value(STATE) == InitialState::Available.name().as_bytes();
            let queue = value(QUEUE);
            let bytes = [KIND, QUEUE, ARGS, PAYLOAD, UNIQUE_KEY].map(|column| value(column).len() as u64).iter().sum();
            let job = Waiting { ord: integer(row[ORD]), job_id: integer(row[JOB_ID]), queue, available, lane, run_at, bytes };
            if let Some(position) = place(job) {
                row[POSITION] = lane.map(|_| Datum::from(position));
                self.store.put(row);
            }
        });
    }
}

/// A ready job: datums of the spool's columns, good until the next job.
#[allow(missing_docs)]
pub struct Ready {
    pub job_id: Option<Datum>,
    pub kind: Option<Datum>,
    pub queue: Option<Datum>,
    pub args: Option<Datum>,
    pub priority: Option<Datum>,
    pub max_attempts: Option<Datum>,
    pub run_at: Option<Datum>,
    pub payload: Option<Datum>,
    pub unique_key: Option<Datum>,
    pub unique_states: Option<Datum>,
    pub shard: Option<Datum>,
    /// Its lane, from 0.
    pub lane: usize,
    /// Its position behind the lane's start.
    pub position: i64,
}

/// A spooled job that is taken from one spool to the next.
pub struct Waiting<'a> {
    /// Place in the request, from 1.
    pub ord: i64,
    /// Its id.
    pub job_id: i64,
    /// Bytes of the stored queue name.
    pub queue: &'a [u8],
    /// Whether it is to be worked as soon as it is due.
    pub available: bool,
    /// Its lane, from 0; `None` where there are no lanes, and for deferred jobs.
    pub lane: Option<usize>,
    /// `None` for the call's clock.
    pub run_at: Option<i64>,
    /// Bytes of the job.
    pub bytes: u64,
}

fn integer(datum: Option<Datum>) -> i64 {
    datum.map_or(0, |datum| datum.value() as i64)
}

const SEGMENTS: &CStr = c"awa_ingest_segments";
const SEGMENT_COLUMNS: [Column; 7] = [
    (c"lane", pg_sys::INT4OID),
    (c"queue", pg_sys::TEXTOID),
    (c"priority", pg_sys::INT2OID),
    (c"shard", pg_sys::INT2OID),
    (c"first", pg_sys::INT8OID),
    (c"next", pg_sys::INT8OID),
    (c"run_at", pg_sys::TIMESTAMPTZOID),
];

/// The ready segments of a call: usually one a lane, but as many as jobs where each has its own `run_at`.
pub struct Segments {
    store: Store<7>,
    arena: Arena,
    /// How many there are.
    pub count: u64,
}

impl Segments {
    /// An empty store in the current memory context.
    pub fn new() -> Self {
        Self { store: Store::new(SEGMENTS, &SEGMENT_COLUMNS, settings::segment_memory()), arena: Arena::default(), count: 0 }
    }

    /// An empty store that lives as long as this one.
    pub fn successor(&self) -> Self {
        self.store.beside(Self::new)
    }

    /// Makes the segments visible to statements, in place of earlier ones.
    pub fn show(&self, session: &Session) {
        self.store.show(session);
    }

    /// Gives back memory and files.
    pub fn close(self) {
        self.store.close();
    }

    /// Appends a segment of a lane.
    pub fn put(&mut self, segment: awa_ingest_core::lanes::Segment, lane: &awa_ingest_core::lanes::Lane) {
        self.count += 1;
        self.arena.clear();
        let queue = self.arena.bytes(lane.queue.as_bytes());
        self.store.put([
            Some(Datum::from(segment.lane as i32 + 1)),
            Some(self.arena.datum(queue)),
            Some(Datum::from(lane.priority)),
            Some(Datum::from(lane.shard)),
            Some(Datum::from(segment.first)),
            Some(Datum::from(segment.next)),
            segment.run_at.map(Datum::from),
        ]);
    }
}
