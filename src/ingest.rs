//! The pipeline. Every way in hands its drafts to one [`Ingest`], which takes them through the same steps:
//!
//! 1. validate, route, give an id, place in a lane, spool (job by job, as drafts arrive);
//! 2. take unique keys, in key order;
//! 3. lock lanes and reserve their positions, in lane order;
//! 4. read the ring position;
//! 5. write rows and segments;
//! 6. notify.

use crate::catalog::QueueCatalog;
use crate::claims::{self, Losers};
use crate::results::Results;
use crate::spi::Session;
use crate::spool::{Segments, Spool, Spooled};
use crate::storage::{Mode, Storage};
use crate::{lanes, notify, ring, write};
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::{Draft, InitialState, RunAt};
use awa_ingest_core::lanes::Lanes;
use awa_ingest_core::route::Router;
use awa_ingest_core::workable;
use std::cell::Cell;

/// What happens to a job whose unique key is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnConflict {
    /// The call fails, and leaves nothing.
    Error,
    /// The job is left out.
    Skip,
}

impl OnConflict {
    /// By its name in SQL.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "error" => Ok(Self::Error),
            "skip" => Ok(Self::Skip),
            _ => Err(Error::OnConflict(name.to_owned())),
        }
    }
}

/// One call's jobs on their way into the storage.
pub struct Ingest<'s> {
    session: &'s Session,
    storage: Storage,
    on_conflict: OnConflict,
    router: Router,
    lanes: Lanes,
    spool: Spool,
    segments: Segments,
    ids: server::Sequence,
    /// When the call began.
    opened: i64,
    jobs: u64,
    claims: u64,
    deferred: u64,
    /// Ready jobs that are due too far from now for awa.
    far: u64,
}

thread_local! {
    /// Shards of jobs without ordering key take turns from call to call, and start apart in different sessions.
    static ROTOR: Cell<Option<u32>> = const { Cell::new(None) };
}

impl<'s> Ingest<'s> {
    /// Looks up the storage and opens the spool.
    pub fn new(session: &'s Session, on_conflict: OnConflict) -> Result<Self> {
        let storage = Storage::resolve(session)?;
        let ids = storage.relation("job_id_seq").ok_or_else(|| Error::UnknownStorage("sequence job_id_seq is missing".into()))?;
        let rotor = ROTOR.get().unwrap_or_else(server::process_id);
        Ok(Self {
            session,
            storage,
            on_conflict,
            router: Router::new(rotor),
            lanes: Lanes::default(),
            spool: Spool::new(session),
            segments: Segments::new(session),
            ids: server::Sequence(ids),
            opened: server::clock(),
            jobs: 0,
            claims: 0,
            deferred: 0,
            far: 0,
        })
    }

    /// Takes the next job, or the reason why there is none in its place.
    pub fn add(&mut self, draft: std::result::Result<Draft<'_>, Fault>) -> Result<()> {
        self.jobs += 1;
        let ordinal = self.jobs;
        let job = draft.and_then(Draft::validate).map_err(|fault| fault.at(ordinal))?;
        let run_at = match job.run_at {
            None => None,
            Some(RunAt::Micros(micros)) => Some(micros),
            Some(RunAt::Text(text)) => Some(server::timestamp(text).map_err(|fault| fault.at(ordinal))?),
        };
        if self.storage.mode == Mode::Attached {
            workable::check(&job, run_at).map_err(|fault| fault.at(ordinal))?;
            self.far += u64::from(workable::is_far(&job, run_at, self.opened));
        }

        let mut catalog = QueueCatalog { session: self.session, storage: &self.storage };
        let route = self.router.route(&job, ordinal, &mut catalog)?;
        let queue = &self.router.stored(route.stored).name;
        let job_id = self.ids.next();

        let mut place = None;
        if job.state == InitialState::Available {
            let lane = self.lanes.find(route.stored, job.priority, route.shard, || queue);
            place = Some((lane, place_in(&mut self.lanes, &mut self.segments, lane, run_at)));
        } else {
            self.deferred += 1;
        }
        self.claims += u64::from(job.claims());
        self.spool.put(&Spooled { ord: ordinal as i64, job_id, queue, job: &job, run_at, shard: route.shard, place });
        if ordinal.is_multiple_of(256) {
            pgrx::check_for_interrupts!();
        }
        Ok(())
    }

    /// Writes everything, and reports each job to `results`.
    pub fn finish(mut self, results: &mut impl Results) -> Result<()> {
        ROTOR.set(Some(self.router.rotor()));
        if self.far > 0 {
            pgrx::warning!(
                "{} available jobs have a run_at more than 22 days from now: awa 0.6.9 fails on queues with such jobs",
                self.far
            );
        }
        let lost = if self.claims > 0 { claims::take(self.session, &self.storage, self.claims)? } else { 0 };
        if lost > 0 && self.on_conflict == OnConflict::Error {
            return Err(claims::conflict(self.session, &self.storage));
        }
        self.report(lost, results);
        if lost > 0 {
            self = self.without_losers();
        }

        self.lanes.open_segments().for_each(|segment| self.segments.put(segment, self.lanes.get(segment.lane)));
        let starts = lanes::reserve(self.session, &self.storage, &self.lanes)?;
        let ready = self.lanes.jobs();
        let position = if ready > 0 { Some(ring::current(self.session, &self.storage)?) } else { None };

        // Read behind the lane locks, the clock runs in lane order.
        let now = server::clock();
        if let Some(position) = position {
            write::ready(self.session, &position, starts, now, ready)?;
            notify::queues(&self.router, &self.lanes);
        }
        if self.deferred > 0 {
            write::deferred(self.session, &self.storage, now, self.deferred)?;
        }
        self.spool.close();
        self.segments.close();
        Ok(())
    }

    fn report(&self, lost: u64, results: &mut impl Results) {
        let mut losers = if lost > 0 { Losers::open(self.session, &self.storage) } else { Losers::none() };
        self.spool.ids(|ord, job_id| match losers.take_if(ord) {
            Some(loser) => results.skipped(ord, loser.holder),
            None => results.enqueued(ord, job_id),
        });
        losers.close();
    }

    /// Spools the jobs once more without those that lost their keys, so that the others close up in their lanes.
    fn without_losers(mut self) -> Self {
        // Opened first: it reads the spool that the new one replaces.
        let mut losers = Losers::open(self.session, &self.storage);
        self.segments.close();
        let (mut spool, mut segments) = (Spool::new(self.session), Segments::new(self.session));
        self.lanes.restart();
        let mut deferred = 0;
        spool.take(&self.spool, |ord, lane, run_at| {
            if losers.take_if(ord).is_some() {
                return None;
            }
            let Some(lane) = lane else {
                deferred += 1;
                return Some(0);
            };
            Some(place_in(&mut self.lanes, &mut segments, lane, run_at))
        });
        losers.close();
        self.spool.close();
        Self { spool, segments, deferred, ..self }
    }
}

/// The next position in the lane; keeps the segment that it ends, if any.
fn place_in(lanes: &mut Lanes, segments: &mut Segments, lane: usize, run_at: Option<i64>) -> i64 {
    let (position, ended) = lanes.place(lane, run_at);
    if let Some(segment) = ended {
        segments.put(segment, lanes.get(lane));
    }
    position
}

/// What the pipeline asks of the server job by job.
mod server {
    #![allow(unsafe_code)]

    use crate::spi::argument;
    use awa_ingest_core::error::Fault;
    use pgrx::pg_sys::panic::CaughtError;
    use pgrx::pg_sys::{self, Datum, Oid};
    use pgrx::{PgSqlErrorCode, PgTryBuilder, direct_function_call_as_datum};
    use std::ffi::CString;

    /// A sequence that job ids come from.
    pub struct Sequence(pub Oid);

    impl Sequence {
        /// The next id; checks the caller's privilege.
        pub fn next(&self) -> i64 {
            // SAFETY: nextval raises for anything that is no sequence.
            unsafe { pg_sys::nextval_internal(self.0, true) }
        }
    }

    /// This process.
    pub fn process_id() -> u32 {
        // SAFETY: set once at the start of the process.
        unsafe { pg_sys::MyProcPid as u32 }
    }

    /// The time now, not that of the transaction.
    pub fn clock() -> i64 {
        // SAFETY: takes no arguments and only reads the clock.
        unsafe { pg_sys::GetCurrentTimestamp() }
    }

    /// Reads a timestamp as SQL would, in the session's time zone and style.
    pub fn timestamp(text: &str) -> Result<i64, Fault> {
        let bad = |reason: String| Fault::Timestamp(text.to_owned(), reason);
        let input = CString::new(text).map_err(|error| bad(error.to_string()))?;
        PgTryBuilder::new(|| {
            let arguments = [Some(Datum::from(input.as_ptr())), argument(Oid::INVALID), argument(-1)];
            // SAFETY: the arguments of a type's input function: a C string, no element type, no type modifier.
            let read = unsafe { direct_function_call_as_datum(pg_sys::timestamptz_in, &arguments) };
            read.map(|datum| datum.value() as i64).ok_or_else(|| bad("no value".into()))
        })
        .catch_others(|caught| match &caught {
            CaughtError::PostgresError(error) if is_bad_timestamp(error.sql_error_code()) => Err(bad(error.message().to_owned())),
            _ => caught.rethrow(),
        })
        .execute()
    }

    fn is_bad_timestamp(code: PgSqlErrorCode) -> bool {
        matches!(
            code,
            PgSqlErrorCode::ERRCODE_INVALID_DATETIME_FORMAT
                | PgSqlErrorCode::ERRCODE_DATETIME_FIELD_OVERFLOW
                | PgSqlErrorCode::ERRCODE_INVALID_TIME_ZONE_DISPLACEMENT_VALUE
                | PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE
        )
    }
}
