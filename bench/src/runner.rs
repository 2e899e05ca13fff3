//! The rounds: every candidate's turn in each, in an order that shifts from round to round.

use std::collections::{BTreeMap, btree_map::Entry};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::candidates::{Candidate, NAMES};
use crate::cpu;
use crate::jobs::Generator;
use crate::plan::{Case, Turn, takes_part};
use crate::stats::{Block, Hold, Measure, Series};
use crate::stores::Stores;
use crate::watch::{Seen, watch};

pub struct Runner {
    pub stores: Stores,
    pub candidates: Vec<Box<dyn Candidate>>,
    pub generator: Generator,
    pub quick: bool,
}

/// What the candidates did in one case.
pub struct Outcome {
    pub case: Case,
    series: BTreeMap<&'static str, Series>,
    watched: BTreeMap<&'static str, Watched>,
}

/// One call's lane hold, from inside and from outside.
pub struct Watched {
    pub reported: Option<Hold>,
    pub seen: Seen,
}

/// What a block has given.
struct Timed {
    block: Block,
    calls: Vec<Duration>,
    watched: Option<Watched>,
}

impl Outcome {
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.get(name)
    }

    pub fn watched(&self, name: &str) -> Option<&Watched> {
        self.watched.get(name)
    }

    /// The candidates that took part, in the report's order.
    pub fn in_order(&self) -> impl Iterator<Item = (&'static str, &Series)> {
        NAMES.into_iter().filter_map(|name| Some((name, self.series.get(name)?)))
    }
}

impl Runner {
    /// Measures one case: a warm-up round that does not count, then `rounds` that do.
    pub async fn measure(&mut self, case: Case, rounds: usize) -> Result<Outcome> {
        let mut outcome = Outcome { case, series: BTreeMap::new(), watched: BTreeMap::new() };
        let first = usize::from(self.quick);
        for round in first..=rounds {
            eprintln!("{case}: round {round} of {rounds}");
            for turn in 0..self.candidates.len() {
                let index = (turn + round) % self.candidates.len();
                let candidate = &self.candidates[index];
                let (name, pace) = (candidate.name(), candidate.pace());
                if !case.admits(pace) || !takes_part(pace, round) {
                    continue;
                }
                // Watching disturbs: only where the figures do not count.
                let timed = self.block(index, case, case.ready && round == first).await.with_context(|| name)?;
                outcome.watched.extend(timed.watched.map(|watched| (name, watched)));
                if round > 0 {
                    let entry = match outcome.series.entry(name) {
                        Entry::Occupied(entry) => entry.into_mut(),
                        Entry::Vacant(entry) => entry.insert(Series::new()?),
                    };
                    entry.add(round, timed.block, &timed.calls)?;
                }
            }
        }
        Ok(outcome)
    }

    /// Repeats one candidate's turn until the program is interrupted, so that a profiler can be attached.
    pub async fn hold(&mut self, index: usize, case: Case) -> Result<()> {
        let (name, backend) = (self.candidates[index].name(), self.candidates[index].backend());
        eprintln!("{name} in a loop, {case}: backend {backend}; end with Ctrl-C");
        loop {
            let block = self.block(index, case, false).await?.block;
            eprintln!("{:.0} jobs/s", block.rate(Measure::Clock).unwrap_or_default());
        }
    }

    /// One candidate's turn on emptied tables.
    async fn block(&mut self, index: usize, case: Case, watched: bool) -> Result<Timed> {
        let candidate = &mut self.candidates[index];
        let turn = case.turn(candidate.pace(), self.quick);
        let mut batches = self.generator.batches(turn.warmup_calls, turn.warmup_size, case.unique);
        batches.extend(self.generator.batches(turn.calls, case.size, case.unique));
        let jobs: usize = batches.iter().map(Vec::len).sum();
        candidate.stage(batches);
        if case.ready {
            candidate.render();
        }
        self.stores.reset(candidate.store()).await?;

        for batch in 0..turn.warmup_calls {
            candidate.call(batch).await?;
        }
        let timed = self.timed_calls(index, case, &turn, watched).await?;
        let candidate = &mut self.candidates[index];
        // A million jobs are a gigabyte, and every candidate has its own.
        candidate.stage(Vec::new());
        self.stores.verify(candidate.store(), jobs, case.unique).await?;
        Ok(timed)
    }

    async fn timed_calls(&mut self, index: usize, case: Case, turn: &Turn, watched: bool) -> Result<Timed> {
        let candidate = &mut self.candidates[index];
        let backend = candidate.backend();
        let (mut calls, mut holds, mut last_seen) = (Vec::with_capacity(turn.calls), Vec::new(), None);
        let processor = cpu::time_of(backend)?;
        for call in 0..turn.calls {
            let batch = turn.warmup_calls + call;
            let start = Instant::now();
            let enqueued = if watched {
                let admin = self.stores.admin(candidate.store())?;
                let (enqueued, seen) = watch(admin, backend, candidate.call(batch)).await?;
                last_seen = seen;
                enqueued
            } else {
                candidate.call(batch).await?
            };
            let time = start.elapsed();
            ensure!(enqueued == case.size, "{enqueued} of {} jobs were enqueued", case.size);
            calls.push(time);
            // What a summary says of a watched call belongs to what was seen of it.
            if case.ready && (watched || turn.asks_after(call)) {
                holds.extend(candidate.summary().await?.map(|summary| Hold::of(&summary, time)));
            }
        }
        let processor = cpu::time_of(backend)? - processor;
        let watched = last_seen.map(|seen| Watched { reported: holds.last().copied(), seen });
        let (jobs, clock, hold) = (turn.calls * case.size, calls.iter().sum(), Hold::mean(&holds));
        Ok(Timed { block: Block { calls: turn.calls, jobs, clock, processor, hold }, calls, watched })
    }
}
