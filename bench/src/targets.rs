//! The speeds that the project's issues ask for, as ratios between candidates of one run.

use crate::candidates::{
    COPY_BINARY, COPY_BINARY_EMBEDDED, COPY_CSV, COPY_CSV_EMBEDDED, ENQUEUE, ENQUEUE_BATCH, ENQUEUE_CSV, FLOOR, FLOOR_BINARY,
    INSERT_JOB_COMPAT, INSERT_MANY, INSERT_MANY_ATTACHED, INSERT_MANY_COPY, INSERT_MANY_COPY_ATTACHED, PARAMS_COPY, REPLAY_COPY_4,
    REPLAY_COPY_16, REPLAY_SKIP_16,
};
use crate::plan::{Case, Kind};
use crate::stats::Measure::{self, Clock, LaneHold, Processor};

/// "`subject` at `size` jobs a call reaches a bound, as a multiple of `baseline`."
pub struct Target {
    pub issue: u32,
    pub subject: &'static str,
    pub baseline: &'static str,
    pub size: usize,
    /// Of the case that it is judged in.
    pub kind: Kind,
    pub measure: Measure,
    pub bound: Bound,
}

#[derive(Clone, Copy)]
pub enum Bound {
    AtLeast(f64),
    Below(f64),
}

impl Bound {
    pub fn admits(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::Below(bound) => ratio < bound,
        }
    }
}

pub const TARGETS: [Target; 23] = [
    target(2, ENQUEUE_BATCH, 10_000, Clock, 1.8, PARAMS_COPY),
    target(2, ENQUEUE_BATCH, 10_000, Clock, 50.0, INSERT_MANY_COPY),
    target(2, ENQUEUE_BATCH, 10_000, Clock, 0.8, FLOOR),
    target(2, ENQUEUE_BATCH, 500, Clock, 2.0, PARAMS_COPY),
    target(2, ENQUEUE, 1, Processor, 5.0, INSERT_JOB_COMPAT),
    // The same without the commit, which costs both alike: a hundred calls a transaction.
    target(2, ENQUEUE, 100, Processor, 5.0, INSERT_JOB_COMPAT),
    target(2, ENQUEUE, 1, Clock, 1.0, INSERT_JOB_COMPAT),
    target(3, COPY_CSV, 500, Clock, 2.2, PARAMS_COPY),
    target(3, COPY_CSV, 10_000, Clock, 2.2, PARAMS_COPY),
    ready(COPY_CSV, 1_000_000, 0.95, FLOOR),
    ready(COPY_BINARY, 1_000_000, 0.95, FLOOR_BINARY),
    ready(COPY_CSV_EMBEDDED, 1_000_000, 1.1, FLOOR),
    ready(COPY_BINARY_EMBEDDED, 1_000_000, 1.1, FLOOR_BINARY),
    ready(ENQUEUE_CSV, 500, 0.85, COPY_CSV),
    ready(ENQUEUE_CSV, 10_000, 0.85, COPY_CSV),
    ready(ENQUEUE_CSV, 1_000_000, 0.85, COPY_CSV),
    lane_hold(COPY_CSV, 500),
    lane_hold(COPY_CSV, 10_000),
    lane_hold(COPY_CSV, 1_000_000),
    target(4, INSERT_MANY_ATTACHED, 500, Clock, 10.0, INSERT_MANY),
    target(4, INSERT_MANY_COPY_ATTACHED, 500, Clock, 10.0, INSERT_MANY_COPY),
    replay(REPLAY_SKIP_16, 15.0, REPLAY_COPY_4),
    replay(REPLAY_SKIP_16, 15.0, REPLAY_COPY_16),
];

/// A row of the table, in the order in which the sentence is read.
const fn target(issue: u32, subject: &'static str, size: usize, measure: Measure, at_least: f64, baseline: &'static str) -> Target {
    Target { issue, subject, baseline, size, kind: Kind::Clients, measure, bound: Bound::AtLeast(at_least) }
}

/// Issue 3: the server's work alone, since both sides' bytes lie ready.
const fn ready(subject: &'static str, size: usize, at_least: f64, baseline: &'static str) -> Target {
    Target { issue: 3, subject, baseline, size, kind: Kind::Ready, measure: Clock, bound: Bound::AtLeast(at_least) }
}

/// Issue 3: lanes are locked for less of the time than the floor takes.
const fn lane_hold(subject: &'static str, size: usize) -> Target {
    Target { issue: 3, subject, baseline: FLOOR, size, kind: Kind::Ready, measure: LaneHold, bound: Bound::Below(0.9) }
}

/// Issue 4: jobs offered a second, those that are skipped included.
const fn replay(subject: &'static str, at_least: f64, baseline: &'static str) -> Target {
    let Case { size, kind, .. } = Case::REPLAY;
    Target { issue: 4, subject, baseline, size, kind, measure: Clock, bound: Bound::AtLeast(at_least) }
}
