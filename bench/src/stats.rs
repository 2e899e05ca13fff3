//! What the timed calls say: rates by round, latencies over all rounds, ratios between candidates.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::candidates::Summary;

/// Linux counts processor time in ticks of 10 ms: below this the figure is mostly rounding.
const SHORTEST_PROCESSOR_TIME: Duration = Duration::from_millis(90);

/// What a rate is counted against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Seconds that passed for the client.
    Clock,
    /// Seconds that the candidate's backend spent on a processor.
    Processor,
    /// Seconds that lanes were locked, at most: to be compared with the other's clock.
    LaneHold,
}

/// How long lanes were locked in a call.
#[derive(Clone, Copy)]
pub struct Hold {
    /// To the end of the statement, as the server says.
    pub statement: Duration,
    /// To the end of the transaction, at most.
    pub transaction: Duration,
}

impl Hold {
    /// Adds the whole time around the statement, which the commit is part of, to what the server says of a call that took `call`.
    pub fn of(summary: &Summary, call: Duration) -> Self {
        let around = call.saturating_sub(summary.elapsed);
        Self { statement: summary.lane_hold, transaction: summary.lane_hold + around }
    }

    /// The mean of several calls, None of none.
    pub fn mean(holds: &[Self]) -> Option<Self> {
        let count = u32::try_from(holds.len()).ok().filter(|&count| count > 0)?;
        let mean = |time: fn(&Self) -> Duration| holds.iter().map(time).sum::<Duration>() / count;
        Some(Self { statement: mean(|hold| hold.statement), transaction: mean(|hold| hold.transaction) })
    }
}

/// The timed calls of one candidate in one round, together.
#[derive(Clone, Copy)]
pub struct Block {
    pub calls: usize,
    pub jobs: usize,
    pub clock: Duration,
    pub processor: Duration,
    /// Of a call, where the server told.
    pub hold: Option<Hold>,
}

impl Block {
    /// Seconds; None where they were not measured, or are too few for the ticks they are counted in.
    fn time(&self, measure: Measure) -> Option<f64> {
        let time = match measure {
            Measure::Clock => self.clock,
            Measure::Processor => (self.processor > SHORTEST_PROCESSOR_TIME).then_some(self.processor)?,
            Measure::LaneHold => self.hold?.transaction * self.calls as u32,
        };
        Some(time.as_secs_f64())
    }

    /// Jobs per second.
    pub fn rate(&self, measure: Measure) -> Option<f64> {
        Some(self.jobs as f64 / self.time(measure)?)
    }

    /// How often this block's rate is the other's; of lane holds, how much of the other's clock they are. Blocks may differ in size.
    fn ratio_to(&self, other: &Self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::LaneHold => Some(other.rate(Measure::Clock)? / self.rate(measure)?),
            _ => Some(self.rate(measure)? / other.rate(measure)?),
        }
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
        let pairs = self.blocks.iter().filter_map(|(round, block)| block.ratio_to(other.blocks.get(round)?, measure));
        Spread::of(pairs.collect())
    }

    /// Seconds that a call held lanes, in the form that `time` picks.
    pub fn hold(&self, time: fn(&Hold) -> Duration) -> Option<Spread> {
        Spread::of(self.blocks.values().filter_map(|block| Some(time(&block.hold?).as_secs_f64())).collect())
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
            let hold = Hold { statement: clock / 10, transaction: clock / 5 };
            let block = Block { calls: 1, jobs: 100, clock, processor: clock / 2, hold: Some(hold) };
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
    fn a_lane_hold_is_a_share_of_the_other_s_clock() {
        let ratio = series(&[(1, 20)]).ratio_to(&series(&[(1, 40)]), Measure::LaneHold).expect("one pair");
        assert!((ratio.median - 0.1).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn what_is_around_the_statement_counts_as_held() {
        let summary = Summary { lane_hold: Duration::from_millis(3), elapsed: Duration::from_millis(5) };
        assert_eq!(Hold::of(&summary, Duration::from_millis(9)).transaction, Duration::from_millis(7));
    }

    #[test]
    fn processor_time_is_counted_apart_from_the_clock() {
        let rate = series(&[(1, 400)]).rate(Measure::Processor).expect("one block");
        assert_eq!(rate.median, 500.0);
    }
}
