//! What the timed calls say: rates by round, latencies over all rounds, ratios between candidates.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

/// Linux counts processor time in ticks of 10 ms: below this the figure is mostly rounding.
const SHORTEST_PROCESSOR_TIME: Duration = Duration::from_millis(90);

/// What a rate is counted against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Seconds that passed for the client.
    Clock,
    /// Seconds that the candidate's backend spent on a processor.
    Processor,
}

/// The timed calls of one candidate in one round, together.
#[derive(Clone, Copy)]
pub struct Block {
    pub jobs: usize,
    pub clock: Duration,
    pub processor: Duration,
}

impl Block {
    /// Jobs per second; None where the time is too short for the ticks it is counted in.
    pub fn rate(&self, measure: Measure) -> Option<f64> {
        let (time, shortest) = match measure {
            Measure::Clock => (self.clock, Duration::ZERO),
            Measure::Processor => (self.processor, SHORTEST_PROCESSOR_TIME),
        };
        (time > shortest).then(|| self.jobs as f64 / time.as_secs_f64())
    }
}

/// Everything measured of one candidate in one case.
pub struct Series {
    blocks: BTreeMap<usize, Block>,
    /// Nanoseconds per call.
    latencies: Histogram<u64>,
}

impl Series {
    pub fn new() -> Result<Self> {
        Ok(Self { blocks: BTreeMap::new(), latencies: Histogram::new(3)? })
    }

    pub fn add(&mut self, round: usize, block: Block, calls: &[Duration]) -> Result<()> {
        self.blocks.insert(round, block);
        for call in calls {
            self.latencies.record(call.as_nanos() as u64)?;
        }
        Ok(())
    }

    pub fn rounds(&self) -> usize {
        self.blocks.len()
    }

    pub fn calls(&self) -> u64 {
        self.latencies.len()
    }

    pub fn latency(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latencies.value_at_quantile(quantile))
    }

    pub fn rate(&self, measure: Measure) -> Option<Spread> {
        Spread::of(self.blocks.values().filter_map(|block| block.rate(measure)).collect())
    }

    /// This candidate's rate over the other's, pair by pair, in the rounds in which both took part.
    pub fn ratio_to(&self, other: &Self, measure: Measure) -> Option<Spread> {
        let pairs = self.blocks.iter().filter_map(|(round, block)| {
            let base = other.blocks.get(round)?;
            Some(block.rate(measure)? / base.rate(measure)?)
        });
        Spread::of(pairs.collect())
    }
}

/// The middle of several values, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[(usize, u64)]) -> Series {
        let mut series = Series::new().expect("a histogram");
        for &(round, millis) in rates {
            let clock = Duration::from_millis(millis);
            let block = Block { jobs: 100, clock, processor: clock / 2 };
            series.add(round, block, &[clock]).expect("a recordable latency");
        }
        series
    }

    #[test]
    fn ratios_pair_only_rounds_that_both_took_part_in() {
        let (fast, slow) = (series(&[(1, 10), (2, 10), (3, 20)]), series(&[(1, 40), (3, 60)]));
        let ratio = fast.ratio_to(&slow, Measure::Clock).expect("two pairs");
        assert_eq!(ratio, Spread { median: 3.5, min: 3.0, max: 4.0 });
    }

    #[test]
    fn nothing_in_common_is_no_ratio() {
        assert!(series(&[(1, 10)]).ratio_to(&series(&[(2, 10)]), Measure::Clock).is_none());
    }

    #[test]
    fn processor_time_is_counted_apart_from_the_clock() {
        let rate = series(&[(1, 400)]).rate(Measure::Processor).expect("one block");
        assert_eq!(rate.median, 500.0);
    }
}
