//! The speeds that the project's issues ask for, as ratios between candidates of one run.

use crate::candidates::{ENQUEUE, ENQUEUE_BATCH, FLOOR, INSERT_JOB_COMPAT, INSERT_MANY_COPY, PARAMS_COPY};
use crate::stats::Measure::{self, Clock, Processor};

/// "`subject` at `size` jobs a call reaches at least `at_least` times the rate of `baseline`."
pub struct Target {
    pub issue: u32,
    pub subject: &'static str,
    pub baseline: &'static str,
    pub size: usize,
    pub measure: Measure,
    pub at_least: f64,
}

pub const TARGETS: [Target; 7] = [
    target(2, ENQUEUE_BATCH, 10_000, Clock, 1.8, PARAMS_COPY),
    target(2, ENQUEUE_BATCH, 10_000, Clock, 50.0, INSERT_MANY_COPY),
    target(2, ENQUEUE_BATCH, 10_000, Clock, 0.8, FLOOR),
    target(2, ENQUEUE_BATCH, 500, Clock, 2.0, PARAMS_COPY),
    target(2, ENQUEUE, 1, Processor, 5.0, INSERT_JOB_COMPAT),
    // The same without the commit, which costs both alike: a hundred calls a transaction.
    target(2, ENQUEUE, 100, Processor, 5.0, INSERT_JOB_COMPAT),
    target(2, ENQUEUE, 1, Clock, 1.0, INSERT_JOB_COMPAT),
];

/// A row of the table, in the order in which the sentence is read.
const fn target(issue: u32, subject: &'static str, size: usize, measure: Measure, at_least: f64, baseline: &'static str) -> Target {
    Target { issue, subject, baseline, size, measure, at_least }
}
