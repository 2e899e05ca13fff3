//! The pipeline. Every way in hands its drafts to one [`Ingest`], which takes them through the same steps:
//!
//! 1. validate, route, give an id, place in a lane, spool (job by job, as drafts arrive);
//! 2. take unique keys, in key order;
//! 3. lock lanes, in lane order;
//! 4. read the ring position;
//! 5. reserve the lanes' positions, and write rows and segments;
//! 6. notify.
//!
//! 2 and 3 may be rolled back and done again. Positions are never given back, so that they are reserved when that is over.
//!
//! No connection to the server's programming interface stays open between jobs: a COPY takes as long as its client likes, and other
//! statements run in between.

mod steps;

use crate::catalog::QueueCatalog;
use crate::ingest_stats::{self, Tally};
use crate::lanes::Waits;
use crate::results::Results;
use crate::server::{self, Ids};
use crate::spi::{self, View};
use crate::spool::{Segments, Spool, Spooled};
use crate::storage::{Engine, Mode, Storage, Version};
use crate::{claims, input, report};
use awa_ingest_core::doubts::Doubts;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::{Draft, InitialState, Job, RunAt};
use awa_ingest_core::lanes::Lanes;
use awa_ingest_core::route::{Route, Router};
use awa_ingest_core::workable;
use std::cell::Cell;
use std::time::{Duration, Instant};

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

/// One call's jobs on their way into the storage, and where their outcomes go.
pub struct Ingest<R> {
    storage: Storage,
    on_conflict: OnConflict,
    /// Jobs arrive from a client that takes its time.
    streams: bool,
    /// Keys are taken as jobs arrive, because their outcome is wanted at once.
    claims_at_once: bool,
    router: Router,
    lanes: Lanes,
    spool: Spool,
    segments: Segments,
    /// The jobs once more without those that lost their keys, and their segments.
    survivors: Option<(Spool, Segments)>,
    ids: Ids,
    results: R,
    /// When the call began: by the wall clock, and for measuring.
    opened: (i64, Instant),
    jobs: u64,
    /// Jobs that were never spooled.
    skipped_at_once: u64,
    claims: u64,
    deferred: u64,
    waits: Waits,
    /// What is counted of each queue, if anything is.
    tally: Option<Tally>,
    /// Jobs of awa's lanes that are available although they are due later.
    early: u64,
    /// Whether awa's clients may be the ones who send the jobs.
    for_awa: bool,
    /// Jobs that were most likely meant otherwise; `None` for jobs that were reported when they first came.
    doubts: Option<Doubts>,
}

/// A job that was taken in.
pub struct Taken<'a> {
    /// The job.
    pub job: Job<'a>,
    /// Its id.
    pub job_id: i64,
    /// Its `timestamptz`; `None` for the time of writing.
    pub run_at: Option<i64>,
}

/// Where a job belongs that is moved from another storage.
pub struct Place {
    /// Its id.
    pub job_id: i64,
    /// The shard that it had: the jobs of one shard stay together.
    pub shard: i16,
}

/// What a call did, and where its time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Jobs asked for.
    pub jobs: u64,
    /// Jobs that were written as deferred.
    pub deferred: u64,
    /// Lanes that got jobs.
    pub lanes: usize,
    /// From the first job to the end.
    pub elapsed: Duration,
    /// From the last job to the end.
    pub writing: Duration,
    /// Waiting for lane locks.
    pub lane_lock_wait: Duration,
    /// From asking for the first lane lock to the end.
    pub lane_hold: Duration,
    /// Whether the jobs did not fit into memory, and went to temporary files.
    pub is_spilled: bool,
}

thread_local! {
    /// Shards of jobs without ordering key take turns from call to call, and start apart in different sessions.
    static ROTOR: Cell<Option<u32>> = const { Cell::new(None) };
}

impl<R: Results> Ingest<R> {
    /// Looks up the storage and opens the spool, in the current memory context, which must outlive the call.
    pub fn new(on_conflict: OnConflict, results: R) -> Result<Self> {
        let storage = spi::connect(|session| Storage::resolve(session, View::Caller, Version::Checked))?;
        let ids = storage.ids()?;
        let rotor = ROTOR.get().unwrap_or_else(server::process_id);
        Ok(Self {
            storage,
            on_conflict,
            streams: false,
            claims_at_once: false,
            router: Router::new(rotor),
            lanes: Lanes::default(),
            spool: Spool::new(on_conflict == OnConflict::Skip),
            segments: Segments::new(),
            survivors: None,
            ids: Ids::single(ids),
            results,
            opened: (server::clock(), Instant::now()),
            jobs: 0,
            skipped_at_once: 0,
            claims: 0,
            deferred: 0,
            waits: Waits::default(),
            tally: ingest_stats::is_on().then(Tally::default),
            early: 0,
            for_awa: false,
            doubts: Some(Doubts::default()),
        })
    }

    /// For jobs that stream in from a client. `at_once` has them take their keys as they arrive, instead of all in key order at the end: what
    /// became of a job is then known at once, and two such calls can deadlock over their keys.
    pub fn streaming(self, at_once: bool) -> Self {
        Self { streams: true, claims_at_once: at_once, ids: self.ids.ahead(), ..self }
    }

    /// For jobs that were counted and reported when they first came.
    pub fn uncounted(self) -> Self {
        Self { tally: None, for_awa: true, doubts: None, ..self }
    }

    /// For jobs that may come from awa's clients, which know a queue with an empty name.
    pub fn for_awa(self) -> Self {
        Self { for_awa: true, ..self }
    }

    /// Where the jobs go.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The place of the next job in the request, from 1.
    pub fn next_ordinal(&self) -> u64 {
        self.jobs + 1
    }

    /// Takes the next job, or the reason why there is none in its place. `None` if it is known already that it is skipped.
    pub fn add<'a>(&mut self, draft: std::result::Result<Draft<'a>, Fault>) -> Result<Option<Taken<'a>>> {
        let (job, run_at, route) = self.begin(draft)?;
        let job_id = self.ids.next();
        self.take(job, run_at, route, job_id)
    }

    /// The same for a job that has its id and shard.
    pub fn add_in_place<'a>(&mut self, draft: std::result::Result<Draft<'a>, Fault>, place: Place) -> Result<Option<Taken<'a>>> {
        let (job, run_at, route) = self.begin(draft)?;
        let shard = place.shard % self.router.stored(route.stored).shards.max(1);
        self.take(job, run_at, Route { shard, ..route }, place.job_id)
    }

    fn begin<'a>(&mut self, draft: std::result::Result<Draft<'a>, Fault>) -> Result<(Job<'a>, Option<i64>, Route)> {
        self.jobs += 1;
        let ordinal = self.jobs;
        if ordinal.is_multiple_of(256) {
            pgrx::check_for_interrupts!();
        }
        let (job, run_at) = self.check(draft).map_err(|fault| fault.at(ordinal))?;
        if let Some(doubts) = &mut self.doubts {
            doubts.look(ordinal, &job);
        }
        let route = self.router.route(&job, ordinal, &mut QueueCatalog { storage: &self.storage })?;
        Ok((job, run_at, route))
    }

    fn take<'a>(&mut self, job: Job<'a>, run_at: Option<i64>, route: Route, job_id: i64) -> Result<Option<Taken<'a>>> {
        let ordinal = self.jobs;
        let mut claims = job.claims();
        if claims && self.claims_at_once {
            if let Some(holder) = claims::take_one(&self.storage, &job, job_id)? {
                self.results.skipped(ordinal as i64, Some(holder));
                self.skipped_at_once += 1;
                if let Some(tally) = &mut self.tally {
                    tally.skipped(route.stored);
                }
                return Ok(None);
            }
            claims = false;
        }
        self.claims += u64::from(claims);
        self.spool(ordinal as i64, job_id, &job, run_at, route, claims);
        self.results.enqueued(ordinal as i64, job_id);
        Ok(Some(Taken { job, job_id, run_at }))
    }

    fn check<'a>(&mut self, draft: std::result::Result<Draft<'a>, Fault>) -> std::result::Result<(Job<'a>, Option<i64>), Fault> {
        let job = draft.and_then(if self.for_awa { Draft::validate_for_awa } else { Draft::validate })?;
        let run_at = match job.run_at {
            None => None,
            Some(RunAt::Micros(micros)) => Some(micros),
            Some(RunAt::Text(text)) => Some(input::timestamp(text)?),
        };
        match self.storage.mode {
            Mode::Embedded => workable::check_text(&job)?,
            Mode::Attached => {
                workable::check(&job, run_at)?;
                if self.storage.engine == Engine::QueueStorage {
                    workable::check_age(&job, run_at, self.opened.0)?;
                    self.early += u64::from(workable::is_early(&job, run_at, self.opened.0));
                }
            }
        }
        Ok((job, run_at))
    }

    fn spool(&mut self, ord: i64, job_id: i64, job: &Job<'_>, run_at: Option<i64>, route: Route, claims: bool) {
        let queue = &self.router.stored(route.stored).name;
        let mut place = None;
        if job.state != InitialState::Available {
            self.deferred += 1;
        } else if self.storage.engine == Engine::QueueStorage {
            let lane = self.lanes.find(route.stored, job.priority, route.shard, || queue);
            place = Some((lane, place_in(&mut self.lanes, &mut self.segments, lane, run_at)));
        }
        let bytes = self.spool.put(&Spooled { ord, job_id, queue, job, run_at, claims, shard: route.shard, place });
        if let Some(tally) = &mut self.tally {
            tally.spooled(route.stored, bytes);
        }
    }

    /// Writes everything.
    pub fn finish(mut self) -> Result<(R, Summary)> {
        ROTOR.set(Some(self.router.rotor()));
        if self.early > 0 {
            pgrx::warning!(
                "{} available jobs have a run_at in the future: awa's workers take them at once; without a state they are scheduled",
                self.early
            );
        }
        self.doubts.iter().flat_map(Doubts::reports).for_each(|(message, hint)| report::warn(&message, hint));
        let begun = Instant::now();
        let is_spilled = self.spool.is_spilled();
        let (summary, held) = spi::connect(|session| self.write(session))?;
        self.spool.close();
        self.segments.close();
        let lane_hold = held.map_or(Duration::ZERO, |held| held.elapsed());
        Ok((self.results, Summary { elapsed: self.opened.1.elapsed(), writing: begun.elapsed(), lane_hold, is_spilled, ..summary }))
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
