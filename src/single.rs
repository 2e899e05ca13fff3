//! One job without a spool: the pipeline's steps for functions that are called once a job. What calls of a statement or transaction have in
//! common they share: the storage as their snapshot shows it, the lanes that they hold, and the ring slot found behind each lane's lock.
#![allow(unsafe_code)]

use crate::before_commit;
use crate::datum;
use crate::direct::{self, Common};
use crate::held::{Held, Taken};
use crate::seen::Seen;
use crate::server;
use crate::spi::{self, Argument};
use crate::spool::Ready;
use crate::statements::{Statement, Target};
use crate::storage::Storage;
use crate::table::Table;
use crate::{ingest_stats, lane_check, notify, write};
use awa_ingest_core::error::Result;
use awa_ingest_core::job::{InitialState, Job};
use awa_ingest_core::lanes::Lane;
use awa_ingest_core::route;
use pgrx::pg_sys::{self, Datum};
use std::cell::Cell;
use std::time::Duration;

/// The values of variable length as they are stored.
pub struct Single {
    /// Text.
    pub kind: Option<Datum>,
    /// The stored queue, a text.
    pub queue: Option<Datum>,
    /// A jsonb.
    pub args: Option<Datum>,
    /// A bytea.
    pub unique_key: Option<Datum>,
    /// A text of eight characters.
    pub unique_states: Option<Datum>,
    /// A jsonb.
    pub payload: Option<Datum>,
}

/// A job that was written. Times are `timestamptz`.
pub struct Written {
    /// Its id.
    pub job_id: i64,
    /// When it is due.
    pub run_at: i64,
    /// When it was written.
    pub created_at: i64,
}

thread_local! {
    /// Jobs that are not unique take the stripes of their queue in turns.
    static TURN: Cell<u64> = const { Cell::new(0) };
}

/// The stored queue and shard of a job. Without ordering key it is the session's own shard, as awa's function has it: a transaction of many
/// calls holds one lane instead of all.
pub fn route(seen: &Seen, job: &Job<'_>) -> Result<(String, i16)> {
    let stored = seen.stored_queues(job.queue)?;
    let turn = TURN.replace(TURN.get().wrapping_add(1));
    let queue = &stored[route::stripe(job, stored.len(), turn)];
    let shard = route::shard(job, queue.shards, |shards| (server::process_id() % shards as u32) as i16);
    Ok((queue.name.clone(), shard))
}

/// Takes the job's key, if it claims, and writes and counts the job.
pub fn write(storage: &Storage, job: &Job<'_>, queue: &str, shard: i16, run_at: Option<i64>, single: &Single) -> Result<Written> {
    let (written, waited) = write_uncounted(storage, job, queue, shard, run_at, single)?;
    if ingest_stats::is_on() {
        // SAFETY: a jsonb that was made for this call.
        let payload = single.payload.map(|payload| unsafe { datum::bytes(payload) });
        ingest_stats::count_job(storage, queue, job.bytes(queue, payload.unwrap_or_default()), waited);
    }
    Ok(written)
}

/// Returns for how long a lane's lock was waited for, if one was taken.
fn write_uncounted(
    storage: &Storage,
    job: &Job<'_>,
    queue: &str,
    shard: i16,
    run_at: Option<i64>,
    single: &Single,
) -> Result<(Written, Option<Duration>)> {
    let job_id = server::nextval(storage.ids()?);
    if job.claims() {
        let arguments = [single.unique_key, Some(Datum::from(job_id))];
        spi::connect(|session| session.run(Statement::ClaimFirst, &storage.target, &arguments));
    }
    let written = |now: i64| Written { job_id, run_at: run_at.unwrap_or(now), created_at: now };
    if job.state != InitialState::Available {
        let written = written(server::clock());
        before_commit::remember(storage, None);
        lane_check::explained(storage, || deferred(storage, job, single, &written))?;
        return Ok((written, None));
    }
    let Taken { held, position, waited } = Held::take(storage, &Lane::of_one(queue, job.priority, shard))?;
    // Read behind the lane's lock, as in the pipeline.
    let written = written(server::clock());
    before_commit::remember(storage, Some((held.position.slot, held.position.generation)));
    lane_check::explained(storage, || ready(&held, position, job, shard, single, &written))?;
    notify::queue(job.queue);
    // SAFETY: later functions of the same statement see the job, as they see what awa's function wrote.
    unsafe { pg_sys::CommandCounterIncrement() };
    Ok((written, waited))
}

fn ready(held: &Held, position: i64, job: &Job<'_>, shard: i16, single: &Single, written: &Written) -> Result<()> {
    let (slot, generation) = (held.position.slot, held.position.generation);
    let common = Common { slot, generation, starts: Vec::new(), now: written.created_at };
    let row = Ready {
        job_id: Some(Datum::from(written.job_id)),
        kind: single.kind,
        queue: single.queue,
        args: single.args,
        priority: Some(Datum::from(job.priority)),
        max_attempts: Some(Datum::from(job.max_attempts)),
        run_at: Some(Datum::from(written.run_at)),
        payload: single.payload,
        unique_key: single.unique_key,
        unique_states: single.unique_states,
        shard: Some(Datum::from(shard)),
        lane: 0,
        position,
    };
    let [first, next] = [position, position + 1].map(|at| Some(Datum::from(at)));
    let (lane_slot, lane_generation) = (Some(Datum::from(slot)), Some(Datum::from(generation)));
    let now = Some(Datum::from(written.created_at));
    let segment = [lane_slot, lane_generation, row.queue, row.priority, row.shard, first, next, row.run_at, now];
    match held.position.partitions {
        Some((entries, segments)) => {
            let row = direct::ready(&row, &common, position);
            if !insert(Table::open(entries, &direct::COLUMNS, held.fits.get()), row) {
                run_ready(&held.position.target, row)?;
            }
            if !insert(Table::open(segments, &direct::SEGMENT_COLUMNS, held.fits.get()), segment) {
                run_segment(&held.position.target, segment)?;
            }
            held.fits.set(true);
            Ok(())
        }
        None => {
            run_ready(&held.position.target, direct::ready(&row, &common, position))?;
            run_segment(&held.position.target, segment)
        }
    }
}

/// Whether the row could be written directly.
fn insert<const N: usize>(table: Option<Table>, row: [Option<Datum>; N]) -> bool {
    let Some(mut table) = table else { return false };
    table.add(row);
    table.write();
    table.close();
    true
}

fn run_ready(target: &Target, row: [Option<Datum>; 18]) -> Result<()> {
    let [slot, generation, id, kind, queue, args, priority, _, _, attempts, position, shard, run_at, _, now, key, states, payload] =
        row;
    let arguments =
        [slot, generation, id, kind, queue, args, priority, attempts, position, shard, run_at, now, key, states, payload];
    run(Statement::ReadyJob, target, &arguments, "ready_entries")
}

fn run_segment(target: &Target, segment: [Option<Datum>; 9]) -> Result<()> {
    let [slot, generation, queue, priority, shard, first, _, run_at, _] = segment;
    run(Statement::SegmentOfOne, target, &[slot, generation, queue, priority, shard, first, run_at], "ready_segments")
}

fn deferred(storage: &Storage, job: &Job<'_>, single: &Single, written: &Written) -> Result<()> {
    let state = spi::argument(job.state.name());
    let arguments = [
        Some(Datum::from(written.job_id)),
        single.kind,
        single.queue,
        single.args,
        state,
        Some(Datum::from(job.priority)),
        Some(Datum::from(job.max_attempts)),
        Some(Datum::from(written.run_at)),
        Some(Datum::from(written.created_at)),
        single.unique_key,
        single.unique_states,
        single.payload,
    ];
    run(Statement::DeferredJob, &storage.target, &arguments, "deferred_jobs")
}

fn run(statement: Statement, target: &Target, arguments: &[Argument], table: &str) -> Result<()> {
    spi::connect(|session| write::write(session, statement, target, arguments, 1, table))
}
