//! Counts what comes in, by queue. A call counts into its session's own list, of which a rolled back subtransaction takes its part; what is
//! committed goes into the table that all sessions share. Where the library was not loaded when the server started, nothing is counted.
#![allow(unsafe_code)]

use crate::datum::interval;
use crate::entry::Call;
use crate::lanes::Waits;
use crate::server;
use crate::settings;
use crate::shared;
use crate::spool::Waiting;
use crate::storage::{Engine, Storage};
use awa_ingest_core::error::Result;
use awa_ingest_core::ingest_stats::{Counts, Pending};
use awa_ingest_core::lanes::Lanes;
use awa_ingest_core::route::{Router, logical_queue};
use pgrx::pg_sys::{self, Datum, Oid, SubTransactionId};
use pgrx::{IntoDatum, pg_guard};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::time::Duration;

thread_local! {
    /// A cell, never borrowed: transactions also end in the middle of whatever the session is doing, when it is terminated.
    static PENDING: Cell<Pending> = Cell::default();
}

/// Whether anything is counted.
pub fn is_on() -> bool {
    shared::is_there()
}

/// Counts a call for one job, of so many bytes; `waited` is for the lock of its lane, if that was taken.
pub fn count_job(storage: &Storage, stored: &str, bytes: u64, waited: Option<Duration>) {
    let mut counts = Counts { jobs: 1, batches: 1, bytes, ..Counts::ZERO };
    waited.into_iter().for_each(|wait| counts.lane_locked(wait));
    count(logical(storage, stored), &counts);
}

fn count(queue: &str, counts: &Counts) {
    // SAFETY: called inside a transaction.
    let now = unsafe { pg_sys::GetCurrentSubTransactionId() };
    with_pending(|pending| pending.add(now, queue, counts));
}

fn with_pending(work: impl FnOnce(&mut Pending)) {
    let mut pending = PENDING.take();
    work(&mut pending);
    PENDING.set(pending);
}

/// The logical queue. The canonical engine has no stripes, and of most names the setting need not be asked.
fn logical<'q>(storage: &Storage, stored: &'q str) -> &'q str {
    match storage.engine {
        Engine::QueueStorage if stored.contains('#') => {
            logical_queue(stored, settings::queue_stripe_count().map(|stripes| stripes as usize))
        }
        _ => stored,
    }
}

/// What a call counts, by the router's index of the stored queue.
#[derive(Default)]
pub struct Tally {
    spooled: Vec<Counts>,
    /// Jobs that were spooled and lost their keys: skipped, and not written.
    lost: Vec<Counts>,
}

impl Tally {
    /// A job was spooled.
    pub fn spooled(&mut self, stored: usize, bytes: u64) {
        let counts = at(&mut self.spooled, stored);
        counts.jobs += 1;
        counts.bytes += bytes;
    }

    /// A job was skipped before it was spooled.
    pub fn skipped(&mut self, stored: usize) {
        at(&mut self.spooled, stored).conflicts += 1;
    }

    /// A spooled job is skipped.
    pub fn lost(&mut self, router: &Router, job: &Waiting<'_>) {
        if let Some(stored) = std::str::from_utf8(job.queue).ok().and_then(|queue| router.find(queue)) {
            let counts = at(&mut self.lost, stored);
            counts.conflicts += 1;
            counts.bytes += job.bytes;
        }
    }

    /// No spooled job is skipped, after all.
    pub fn restart(&mut self) {
        self.lost.clear();
    }

    /// Counts all, and the lanes that were locked.
    pub fn count(self, storage: &Storage, router: &Router, lanes: &Lanes, waits: &Waits) {
        let Self { spooled: mut sums, lost } = self;
        for (sum, lost) in sums.iter_mut().zip(lost) {
            sum.jobs -= lost.conflicts;
            sum.bytes -= lost.bytes;
            sum.conflicts += lost.conflicts;
        }
        for index in lanes.in_order() {
            let wait = waits.waited.get(&index).copied().unwrap_or_default();
            at(&mut sums, lanes.get(index).stored).lane_locked(wait);
        }
        // One call for a queue, over however many stripes its jobs went.
        let mut queues: HashMap<&str, Counts> = HashMap::new();
        for (stored, sum) in sums.iter().enumerate().filter(|(_, sum)| **sum != Counts::ZERO) {
            queues.entry(logical(storage, &router.stored(stored).name)).or_default().add(sum);
        }
        queues.into_iter().for_each(|(queue, sum)| count(queue, &Counts { batches: 1, ..sum }));
    }
}

fn at(counts: &mut Vec<Counts>, index: usize) -> &mut Counts {
    if index >= counts.len() {
        counts.resize(index + 1, Counts::ZERO);
    }
    &mut counts[index]
}

/// `awa_ingest.read_ingest_stats`: a row `(queue, jobs, batches, conflicts, bytes, lane_lock_waits, lane_lock_wait_time)` for each queue of this
/// database that something was counted of. Queue is NULL for those that found no room in the table.
pub fn read_ingest_stats(call: &Call) -> Result<Option<Datum>> {
    let database = server::database().to_u32();
    let name = |queue: Option<&[u8]>| queue.map(|queue| String::from_utf8_lossy(queue).into_owned());
    let counts = shared::ingest_stats::read(|table| {
        table.of(database).map(|(queue, counts)| (name(queue), *counts)).collect::<Vec<(Option<String>, Counts)>>()
    });
    let mut rows = call.rows();
    for (queue, counts) in counts.unwrap_or_default() {
        rows.put([
            queue.into_datum(),
            (counts.jobs as i64).into_datum(),
            (counts.batches as i64).into_datum(),
            (counts.conflicts as i64).into_datum(),
            (counts.bytes as i64).into_datum(),
            counts.lane_lock_waits.map(|waits| waits as i64).to_vec().into_datum(),
            interval(Duration::from_micros(counts.lane_lock_wait_time)),
        ]);
    }
    Ok(None)
}

/// `awa_ingest.reset_ingest_stats`: forgets what was counted of this database, and of databases that are dropped. What open transactions
/// counted is still to come.
pub fn reset_ingest_stats(_call: &Call) -> Result<Option<Datum>> {
    let known = shared::ingest_stats::read(|table| table.databases()).unwrap_or_default();
    let own = server::database().to_u32();
    // The catalog is not asked while others wait for the table.
    let gone: Vec<u32> = known.into_iter().filter(|database| *database == own || !is_database(*database)).collect();
    shared::ingest_stats::change(|table| table.forget(|database| gone.contains(&database)));
    Ok(None)
}

fn is_database(oid: u32) -> bool {
    // SAFETY: any oid may be asked for.
    !unsafe { pg_sys::get_database_name(Oid::from(oid)) }.is_null()
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
        pg_sys::XactEvent::XACT_EVENT_COMMIT => {
            let pending = PENDING.take();
            if !pending.is_empty() {
                let database = server::database().to_u32();
                shared::ingest_stats::change(|table| {
                    pending.counts().for_each(|(queue, counts)| table.add(database, queue, counts));
                });
            }
        }
        // What becomes of a prepared transaction is not this session's to know.
        pg_sys::XactEvent::XACT_EVENT_ABORT | pg_sys::XactEvent::XACT_EVENT_PREPARE => drop(PENDING.take()),
        _ => {}
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn subtransaction_ends(
    event: pg_sys::SubXactEvent::Type,
    own: SubTransactionId,
    parent: SubTransactionId,
    _argument: *mut c_void,
) {
    match event {
        pg_sys::SubXactEvent::SUBXACT_EVENT_COMMIT_SUB => with_pending(|pending| pending.released(own, parent)),
        pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB => with_pending(|pending| pending.rolled_back(own)),
        _ => {}
    }
}
