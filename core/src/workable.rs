//! Refuses what awa 0.6.9 takes into its storage and then fails on, again and again, with all jobs behind it: its workers read JSON
//! with serde_json and times with chrono, and reckon a ready job's age in minutes as a smallint. Found by running awa's workers.

use crate::error::Fault;
use crate::job::{InitialState, Job};
use crate::jsonb::{Container, Value};

/// serde_json reads 127 levels.
const DEEPEST_ARGS: usize = 127;
/// The payload puts one level around metadata.
const DEEPEST_METADATA: usize = DEEPEST_ARGS - 1;

const MINUTE: i64 = 60 * 1_000_000;
const DAY: i64 = 24 * 60 * MINUTE;
/// 32,767 minutes are 22.75 days.
const FARTHEST: i64 = 22 * DAY;
/// The beginning of the year 262143, the first that chrono does not have. PostgreSQL's first year is far from chrono's.
const FIRST_UNREADABLE: i64 = 95_015_280 * DAY;

/// Checks a job that awa's workers are to work. `run_at` is PostgreSQL's `timestamptz`; a deferred job with a time that chrono does not have
/// waits for ever, but a client that lists or cancels it panics.
pub fn check(job: &Job<'_>, run_at: Option<i64>) -> Result<(), Fault> {
    walk(job, true)?;
    match run_at {
        Some(i64::MIN) => Err(Fault::UnreadableTime("is -infinity")),
        Some(i64::MAX) => Err(Fault::UnreadableTime("is infinity")),
        Some(FIRST_UNREADABLE..) => Err(Fault::UnreadableTime("is later than the year 262142")),
        _ => Ok(()),
    }
}

/// Checks the time of a job that goes into a lane of awa's, whose age its claim function reckons.
pub fn check_age(job: &Job<'_>, run_at: Option<i64>, now: i64) -> Result<(), Fault> {
    match run_at {
        Some(run_at) if job.state == InitialState::Available && is_far(run_at, now) => Err(Fault::FarTime),
        _ => Ok(()),
    }
}

/// Checks that all strings of a job are text, which every reader needs.
pub fn check_text(job: &Job<'_>) -> Result<(), Fault> {
    walk(job, false)
}

fn walk(job: &Job<'_>, awas_limits: bool) -> Result<(), Fault> {
    let limits = |key, deepest| {
        if awas_limits { Limits { key, deepest, numbers: true } } else { Limits { key, deepest: usize::MAX, numbers: false } }
    };
    if let Some(args) = job.args {
        limits("args", DEEPEST_ARGS).check(args)?;
    }
    if let Some(metadata) = job.metadata {
        limits("metadata", DEEPEST_METADATA).check(Value::Object(metadata))?;
    }
    Ok(())
}

/// Whether a job is available although it is due later, by more than clocks differ.
pub fn is_early(job: &Job<'_>, run_at: Option<i64>, now: i64) -> bool {
    job.state == InitialState::Available && run_at.is_some_and(|run_at| run_at.saturating_sub(now) > MINUTE)
}

/// Whether a ready job is due so far from now, in either direction, that awa cannot reckon its age. A job that waits long enough becomes one.
pub fn is_far(run_at: i64, now: i64) -> bool {
    now.saturating_sub(run_at).unsigned_abs() > FARTHEST as u64
}

/// What a value of a job may have in it.
struct Limits {
    key: &'static str,
    deepest: usize,
    /// Whether numbers must be such that awa's workers read them.
    numbers: bool,
}

impl Limits {
    /// Level by level, without recursion: the value may nest deeper than a stack allows.
    fn check(&self, value: Value<'_>) -> Result<(), Fault> {
        let mut level = Vec::new();
        match value {
            Value::Array(root) | Value::Object(root) => self.visit(root, &mut level)?,
            scalar => self.check_number(scalar)?,
        }
        for _ in 1..self.deepest {
            if level.is_empty() {
                return Ok(());
            }
            for container in std::mem::take(&mut level) {
                self.visit(container, &mut level)?;
            }
        }
        if level.is_empty() { Ok(()) } else { Err(Fault::Nesting(self.key)) }
    }

    /// Checks a container's own elements, and keeps its containers for the next level.
    fn visit<'a>(&self, container: Container<'a>, next: &mut Vec<Container<'a>>) -> Result<(), Fault> {
        for child in container.numbers_and_containers()? {
            match child? {
                Value::Array(inner) | Value::Object(inner) => next.push(inner),
                number => self.check_number(number)?,
            }
        }
        Ok(())
    }

    fn check_number(&self, value: Value<'_>) -> Result<(), Fault> {
        match value {
            Value::Number(number) if self.numbers && !number.is_readable() => Err(Fault::NumberRange(self.key)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Draft;
    use crate::jsonb::encode;
    use serde_json::{Value as Json, json};

    fn nested(levels: usize) -> Vec<u8> {
        encode(&(0..levels).fold(json!(1), |inner, _| json!([inner])))
    }

    #[test]
    fn serde_json_reads_what_is_let_through() {
        for levels in [1, 126, 127, 128, 129] {
            let text = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
            let read = serde_json::from_str::<Json>(&text).is_ok();
            let bytes = nested(levels);
            assert_eq!(
                Limits { key: "args", deepest: DEEPEST_ARGS, numbers: true }.check(Value::root(&bytes).unwrap()).is_ok(),
                read,
                "{levels}"
            );
        }
    }

    #[test]
    fn times_that_stop_awa_are_refused() {
        let job = |state| Draft { kind: Some("k"), state: Some(state), ..Draft::default() }.validate().unwrap();
        let good = |state, run_at| check(&job(state), Some(run_at)).is_ok();
        for state in ["available", "scheduled", "retryable"] {
            assert!(good(state, 0) && good(state, FIRST_UNREADABLE - 1) && good(state, -7000 * 365 * DAY));
            assert!(!good(state, i64::MAX) && !good(state, i64::MIN) && !good(state, FIRST_UNREADABLE));
        }
        let ages = |state, run_at| check_age(&job(state), run_at, 1000 * DAY).is_ok();
        assert!(ages("available", Some(980 * DAY)) && ages("available", Some(1020 * DAY)) && ages("available", None));
        assert!(!ages("available", Some(970 * DAY)) && !ages("available", Some(1030 * DAY)));
        let early = |state, run_at| is_early(&job(state), run_at, 1000 * DAY);
        assert!(early("available", Some(1001 * DAY)) && !early("available", Some(999 * DAY)) && !early("available", None));
        assert!(!early("scheduled", Some(1001 * DAY)) && !early("available", Some(1000 * DAY + MINUTE)));
        assert!(ages("scheduled", Some(0)) && ages("retryable", Some(0)));
    }
}
