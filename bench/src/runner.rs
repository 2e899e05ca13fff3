//! The rounds: every candidate's turn in each, in an order that shifts from round to round.

use std::collections::{BTreeMap, btree_map::Entry};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::try_join_all;

use crate::candidates::{Candidate, NAMES};
use crate::cpu;
use crate::jobs::Generator;
use crate::plan::{Case, Kind, Turn};
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
                if !case.has_turn(pace, round) {
                    continue;
                }
                // Watching disturbs: only where the figures do not count.
                let timed = self.block(index, case, case.kind == Kind::Ready && round == first).await.with_context(|| name)?;
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
        if case.kind == Kind::Ready {
            candidate.render();
        }
        self.stores.reset(candidate.store()).await?;
        candidate.before().await?;

        let timed = if case.kind == Kind::Replay {
            self.calls_at_once(index, case, &turn).await?
        } else {
            for batch in 0..turn.warmup_calls {
                candidate.call(batch).await?;
            }
            self.timed_calls(index, case, &turn, watched).await?
        };
        let candidate = &mut self.candidates[index];
        // A million jobs are a gigabyte, and every candidate has its own.
        candidate.stage(Vec::new());
        self.stores.verify(candidate.store(), jobs, case.unique).await?;
        Ok(timed)
    }

    async fn timed_calls(&mut self, index: usize, case: Case, turn: &Turn, watched: bool) -> Result<Timed> {
        let candidate = &self.candidates[index];
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
            if case.kind == Kind::Ready && (watched || turn.asks_after(call)) {
                holds.extend(candidate.summary().await?.map(|summary| Hold::of(&summary, time)));
            }
        }
        let processor = cpu::time_of(backend)? - processor;
        let watched = last_seen.map(|seen| Watched { reported: holds.last().copied(), seen });
        let (jobs, clock, hold) = (turn.calls * case.size, calls.iter().sum(), Hold::mean(&holds));
        Ok(Timed { block: Block { calls: turn.calls, jobs, clock, processor, hold }, calls, watched })
    }

    /// The calls of several producers. Each makes its own one after the other, and waits for no other producer.
    async fn calls_at_once(&self, index: usize, case: Case, turn: &Turn) -> Result<Timed> {
        let candidate = &self.candidates[index];
        produce(&**candidate, case, 0..turn.warmup_calls).await?;
        let processor = || candidate.backends().into_iter().map(cpu::time_of).sum::<Result<Duration>>();
        let processor_before = processor()?;
        let start = Instant::now();
        let calls = produce(&**candidate, case, turn.warmup_calls..turn.warmup_calls + turn.calls).await?;
        let clock = start.elapsed();
        let processor = processor()? - processor_before;
        let block = Block { calls: turn.calls, jobs: turn.calls * case.size, clock, processor, hold: None };
        Ok(Timed { block, calls, watched: None })
    }
}

/// Shares the batches out to the candidate's producers and returns the time of each call.
async fn produce(candidate: &dyn Candidate, case: Case, batches: Range<usize>) -> Result<Vec<Duration>> {
    let producers = candidate.pace().producers();
    let work = (0..producers).map(|producer| {
        let own = batches.clone().skip(producer).step_by(producers);
        async move {
            let mut calls = Vec::new();
            for batch in own {
                let start = Instant::now();
                let enqueued = candidate.call(batch).await?;
                calls.push(start.elapsed());
                ensure!(enqueued == case.enqueued(), "{enqueued} jobs were enqueued instead of {}", case.enqueued());
            }
            Ok(calls)
        }
    });
    Ok(try_join_all(work).await?.concat())
}
