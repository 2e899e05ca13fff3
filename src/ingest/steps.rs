//! What a call does when all its jobs are there: keys, lanes, ring position, rows.

use super::{Ingest, OnConflict, Summary, place_in};
use crate::before_commit;
use crate::claims::{self, Losers};
use crate::direct::Common;
use crate::ingest_stats::Tally;
use crate::lanes::{self, Locked};
use crate::results::Results;
use crate::spi::{Session, View};
use crate::storage::{Engine, Storage, Version};
use crate::{lane_check, notify, ring, server, subtransaction, write};
use awa_ingest_core::error::{Error, Result};
use std::time::Instant;

/// Keys and lanes that are taken, and when the first lane was asked for.
struct Secured {
    locked: Locked,
    /// Jobs that are left.
    jobs: u64,
    begun: Instant,
}

impl<R: Results> Ingest<R> {
    /// Returns when the first lane was asked for, if any was.
    pub(super) fn write(&mut self, session: &Session) -> Result<(Summary, Option<Instant>)> {
        if self.streams {
            self.check_storage(session)?;
        }
        // Whoever waits can stand in a circle of others: with more than one thing in hand, or in a queue that the circle goes through.
        let secured = match self.claims > 0 || self.lanes.jobs() > 0 {
            true => subtransaction::insist(|| self.secure(session))?,
            false => self.secure(session)?,
        };
        if let Some((spool, segments)) = self.survivors.take() {
            std::mem::replace(&mut self.spool, spool).close();
            std::mem::replace(&mut self.segments, segments).close();
        }
        let Secured { locked, jobs, begun } = secured;
        let deferred = self.deferred;
        // Read behind the lane locks, the clock runs in lane order.
        let now = server::clock();
        let summary =
            Summary { jobs: self.jobs, deferred, lanes: locked.len(), lane_lock_wait: locked.waited, ..Summary::default() };
        let held = (locked.len() > 0).then_some(begun);
        let storage = self.storage.clone();
        lane_check::explained(&storage, || match storage.engine {
            Engine::QueueStorage => self.write_queue_storage(session, &locked, now),
            Engine::Canonical if jobs > 0 => {
                before_commit::remember(&storage, None);
                write::canonical(session, &storage, now, jobs - deferred, deferred)
            }
            Engine::Canonical => Ok(()),
        })?;
        self.results.written(session, &self.storage, now)?;
        if let Some(tally) = self.tally.take() {
            tally.count(&self.storage, &self.router, &self.lanes, &self.waits);
        }
        Ok((summary, held))
    }

    /// Takes keys, then locks lanes. May be called again after what it did was rolled back.
    fn secure(&mut self, session: &Session) -> Result<Secured> {
        self.waits.resume();
        self.spool.show(session);
        self.segments.show(session);
        let lost = if self.claims > 0 { claims::take(session, &self.storage, self.claims)? } else { 0 };
        match (lost, self.on_conflict) {
            (0, _) if self.survivors.is_none() => {}
            (_, OnConflict::Error) => return Err(claims::conflict(session, &self.storage)),
            (_, OnConflict::Skip) => self.leave_out_losers(session, lost)?,
        }
        let begun = Instant::now();
        let locked = lanes::lock_all(session, &self.storage, &self.lanes, &mut self.waits)?;
        Ok(Secured { locked, jobs: self.jobs - self.skipped_at_once - lost, begun })
    }

    fn write_queue_storage(&mut self, session: &Session, locked: &Locked, now: i64) -> Result<()> {
        self.lanes.open_segments().for_each(|segment| self.segments.put(segment, self.lanes.get(segment.lane)));
        let ready = self.lanes.jobs();
        if ready > 0 {
            let position = ring::current(session, &self.storage)?;
            // Behind the last lock that is waited for.
            let starts = locked.reserve(&self.lanes);
            before_commit::remember(&self.storage, Some((position.slot, position.generation)));
            let common = Common { slot: position.slot, generation: position.generation, starts, now };
            write::ready(session, &position, &self.spool, common, ready, self.segments.count)?;
            notify::queues(&self.router, &self.lanes);
        }
        if self.deferred > 0 {
            before_commit::remember(&self.storage, None);
            write::deferred(session, &self.storage, now, self.deferred)?;
        }
        Ok(())
    }

    /// While a client streamed, awa may have been migrated, rolled back or installed: its jobs must not go where nobody works them.
    fn check_storage(&self, session: &Session) -> Result<()> {
        let now = Storage::resolve(session, View::Latest, Version::Checked)?;
        if now.is_same(&self.storage) { Ok(()) } else { Err(Error::StorageChanged) }
    }

    /// Spools the jobs once more without those that lost their keys, so that the others close up in their lanes.
    fn leave_out_losers(&mut self, session: &Session, lost: u64) -> Result<()> {
        if let Some((spool, segments)) = self.survivors.take() {
            spool.close();
            segments.close();
        }
        let (spool, segments) = self.survivors.insert((self.spool.successor(), self.segments.successor()));
        let mut losers = Losers::open(session, &self.storage);
        let Self { lanes, results, deferred, router, tally, .. } = self;
        lanes.restart();
        results.restart();
        tally.iter_mut().for_each(Tally::restart);
        *deferred = 0;
        let mut left_out = 0;
        spool.take(&self.spool, |job| {
            if let Some(loser) = losers.take_if(job.ord) {
                results.skipped(job.ord, loser.holder);
                tally.iter_mut().for_each(|tally| tally.lost(router, &job));
                left_out += 1;
                return None;
            }
            results.enqueued(job.ord, job.job_id);
            *deferred += u64::from(!job.available);
            Some(job.lane.map_or(0, |lane| place_in(lanes, segments, lane, job.run_at)))
        });
        losers.close();
        spool.show(session);
        segments.show(session);
        if left_out == lost { Ok(()) } else { Err(Error::ClaimsHidden) }
    }
}
