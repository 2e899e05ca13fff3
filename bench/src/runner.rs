//! The rounds: every candidate's turn in each, in an order that shifts from round to round.

use std::collections::{BTreeMap, btree_map::Entry};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::candidates::{Candidate, NAMES};
use crate::cpu;
use crate::jobs::Generator;
use crate::plan::{Case, takes_part};
use crate::stats::{Block, Measure, Series};
use crate::stores::Stores;

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
}

impl Outcome {
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.get(name)
    }

    /// The candidates that took part, in the report's order.
    pub fn in_order(&self) -> impl Iterator<Item = (&'static str, &Series)> {
        NAMES.into_iter().filter_map(|name| Some((name, self.series.get(name)?)))
    }
}

impl Runner {
    /// Measures one case: a warm-up round that does not count, then `rounds` that do.
    pub async fn measure(&mut self, case: Case, rounds: usize) -> Result<Outcome> {
        let mut series = BTreeMap::new();
        let first = usize::from(self.quick);
        for round in first..=rounds {
            eprintln!("batches of {}, unique {}: round {round} of {rounds}", case.size, case.unique);
            for turn in 0..self.candidates.len() {
                let index = (turn + round) % self.candidates.len();
                let candidate = &self.candidates[index];
                let (name, pace) = (candidate.name(), candidate.pace());
                if !case.admits(pace) || !takes_part(pace, round) {
                    continue;
                }
                let (block, calls) = self.block(index, case).await.with_context(|| name)?;
                if round > 0 {
                    let entry = match series.entry(name) {
                        Entry::Occupied(entry) => entry.into_mut(),
                        Entry::Vacant(entry) => entry.insert(Series::new()?),
                    };
                    entry.add(round, block, &calls)?;
                }
            }
        }
        Ok(Outcome { case, series })
    }

    /// Repeats one candidate's turn until the program is interrupted, so that a profiler can be attached.
    pub async fn hold(&mut self, index: usize, case: Case) -> Result<()> {
        let (name, backend) = (self.candidates[index].name(), self.candidates[index].backend());
        eprintln!("{name} in a loop, batches of {}: backend {backend}; end with Ctrl-C", case.size);
        loop {
            let (block, _) = self.block(index, case).await?;
            eprintln!("{:.0} jobs/s", block.rate(Measure::Clock).unwrap_or_default());
        }
    }

    /// One candidate's turn on emptied tables.
    async fn block(&mut self, index: usize, case: Case) -> Result<(Block, Vec<Duration>)> {
        let candidate = &mut self.candidates[index];
        let turn = case.turn(candidate.pace(), self.quick);
        let mut batches = self.generator.batches(turn.warmup_calls, turn.warmup_size, case.unique);
        batches.extend(self.generator.batches(turn.calls, case.size, case.unique));
        let jobs: usize = batches.iter().map(Vec::len).sum();
        candidate.stage(&batches);
        self.stores.reset(candidate.store()).await?;

        for batch in 0..turn.warmup_calls {
            candidate.call(batch).await?;
        }
        let mut calls = Vec::with_capacity(turn.calls);
        let processor = cpu::time_of(candidate.backend())?;
        for batch in turn.warmup_calls..batches.len() {
            let start = Instant::now();
            let enqueued = candidate.call(batch).await?;
            calls.push(start.elapsed());
            ensure!(enqueued == case.size, "{enqueued} of {} jobs were enqueued", case.size);
        }
        let processor = cpu::time_of(candidate.backend())? - processor;

        self.stores.verify(candidate.store(), jobs, case.unique).await?;
        let block = Block { jobs: turn.calls * case.size, clock: calls.iter().sum(), processor };
        Ok((block, calls))
    }
}
