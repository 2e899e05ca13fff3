//! The results as Markdown.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::candidates::{
    COPY_CSV, FLOOR, FLOOR_BINARY, INSERT, INSERT_ATTACHED, INSERT_MANY_COPY, INSERT_PLAIN, PARAMS_COPY, REPLAY_COPY_4,
    REPLAY_COPY_16, floor_of, need,
};
use crate::plan::Kind;
use crate::runner::{Outcome, Watched};
use crate::stats::{Hold, Measure, Series, Spread};
use crate::stores::Offer;
use crate::targets::{Bound, TARGETS, Target};

/// What every candidate is compared to, beside its own figures.
const fn baselines(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Clients => &[PARAMS_COPY, INSERT_MANY_COPY, FLOOR],
        Kind::Ready => &[COPY_CSV, FLOOR, FLOOR_BINARY],
        Kind::Replay => &[REPLAY_COPY_4, REPLAY_COPY_16],
    }
}

/// A table for each case, then the list of targets.
pub fn markdown(machine: &str, skipped: &[&str], outcomes: &[Outcome]) -> Result<String, fmt::Error> {
    let mut out = format!("{machine}\n");
    for name in skipped {
        let lack = match need(name) {
            Offer::Nothing | Offer::Functions => "awa_ingest to create",
            Offer::ForeignTables => "awa_ingest with a table awa.ingest",
            Offer::Replacement => "awa_ingest with a function attach",
        };
        writeln!(out, "\nSkipped `{name}`: the server has no extension {lack}.")?;
    }
    for outcome in outcomes {
        case_table(&mut out, outcome)?;
        match outcome.case.kind {
            Kind::Clients => cost_table(&mut out, outcome)?,
            Kind::Ready => hold_table(&mut out, outcome)?,
            Kind::Replay => {}
        }
    }
    target_table(&mut out, outcomes)?;
    Ok(out)
}

fn case_table(out: &mut String, outcome: &Outcome) -> fmt::Result {
    let baselines = baselines(outcome.case.kind);
    let heading = outcome.case.to_string();
    writeln!(out, "\n### B{}\n", &heading[1..])?;
    write!(out, "| path | jobs/s | p50 ms | p95 ms | p99 ms | rounds (calls) |")?;
    for baseline in baselines {
        write!(out, " ÷ {baseline} |")?;
    }
    writeln!(out, " jobs per server CPU second |")?;
    writeln!(out, "|---|{}", "--:|".repeat(baselines.len() + 6))?;

    for (name, series) in outcome.in_order() {
        write!(out, "| {name} | {} |", rate(series, Measure::Clock))?;
        for quantile in [0.50, 0.95, 0.99] {
            write!(out, " {} |", millis(series.latency(quantile)))?;
        }
        write!(out, " {} ({}) |", series.rounds(), grouped(series.calls() as f64))?;
        for baseline in baselines {
            let ratio = (*baseline != name).then(|| ratio(outcome, name, baseline, Measure::Clock));
            write!(out, " {} |", or_dash(ratio.flatten()))?;
        }
        writeln!(out, " {} |", rate(series, Measure::Processor))?;
    }
    Ok(())
}

/// What a job costs that has a call of its own, beside a plain INSERT.
fn cost_table(out: &mut String, outcome: &Outcome) -> fmt::Result {
    if outcome.series(INSERT_PLAIN).is_none() {
        return Ok(());
    }
    writeln!(out, "\n| path | µs a job | × {INSERT_PLAIN} | server CPU, µs a job | × {INSERT_PLAIN} |\n|---|--:|--:|--:|--:|")?;
    for name in [INSERT, INSERT_ATTACHED, INSERT_PLAIN] {
        let Some(series) = outcome.series(name) else { continue };
        write!(out, "| {name} |")?;
        for measure in [Measure::Clock, Measure::Processor] {
            let cost = series.rate(measure).map_or_else(|| "–".to_owned(), |rate| format!("{:.1}", 1e6 / rate.median));
            let multiple = (name != INSERT_PLAIN).then(|| ratio(outcome, INSERT_PLAIN, name, measure)).flatten();
            write!(out, " {cost} | {} |", or_dash(multiple))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// How long lanes were locked, for the ways of which the server tells or another session saw it.
fn hold_table(out: &mut String, outcome: &Outcome) -> fmt::Result {
    let mut rows = String::new();
    for (name, series) in outcome.in_order() {
        let (reported, watched) = (series.hold(|hold| hold.statement), outcome.watched(name));
        if reported.is_none() && watched.is_none() {
            continue;
        }
        write!(rows, "| {name} | {} | {} |", hold_millis(reported), hold_millis(series.hold(|hold| hold.transaction)))?;
        writeln!(
            rows,
            " {} | {} |",
            or_dash(ratio(outcome, name, floor_of(name), Measure::LaneHold)),
            watched.map_or_else(|| "–".to_owned(), seen),
        )?;
    }
    if !rows.is_empty() {
        writeln!(out, "\n| path | lane hold, statement, ms | with the commit, at most, ms | ÷ the floor's time | seen once, ms |")?;
        write!(out, "|---|--:|--:|--:|---|\n{rows}")?;
    }
    Ok(())
}

/// The verdict is on jobs without unique keys, but of replays; the figure with them stands beside it.
fn target_table(out: &mut String, outcomes: &[Outcome]) -> fmt::Result {
    writeln!(out, "\n### Targets\n")?;
    writeln!(out, "| issue | target | measured | | with unique keys |\n|--:|---|--:|---|--:|")?;
    for target in &TARGETS {
        let measured = measured(target, outcomes, target.kind == Kind::Replay);
        let verdict = match measured {
            None => "not measured",
            Some(ratio) if target.bound.admits(ratio.median) => "met",
            Some(_) => "**not met**",
        };
        writeln!(
            out,
            "| {} | {} | {} | {verdict} | {} |",
            target.issue,
            sentence(target),
            or_dash(measured),
            or_dash(self::measured(target, outcomes, true)),
        )?;
    }
    Ok(())
}

fn sentence(target: &Target) -> String {
    let bound = match target.bound {
        Bound::AtLeast(bound) => format!("at least {bound}"),
        Bound::Below(bound) => format!("below {bound}"),
    };
    let unit = match target.measure {
        Measure::Clock => "jobs/s",
        Measure::Processor => "jobs per server CPU second",
        Measure::LaneHold => "lane hold with the commit ÷ time",
    };
    let kind = match target.kind {
        Kind::Clients => "",
        Kind::Ready => ", bytes ready",
        Kind::Replay => ", half of the keys claimed",
    };
    format!("{} at {}{kind}: {bound} × {}, {unit}", target.subject, grouped(target.size as f64), target.baseline)
}

fn measured(target: &Target, outcomes: &[Outcome], unique: bool) -> Option<Spread> {
    let outcome = outcomes
        .iter()
        .find(|Outcome { case, .. }| case.size == target.size && case.kind == target.kind && case.unique == unique)?;
    ratio(outcome, target.subject, target.baseline, target.measure)
}

fn ratio(outcome: &Outcome, subject: &str, baseline: &str, measure: Measure) -> Option<Spread> {
    outcome.series(subject)?.ratio_to(outcome.series(baseline)?, measure)
}

/// What another session saw of one call, and what the server and the client say of the same call.
fn seen(watched: &Watched) -> String {
    let seen = format!("{} to {}", millis(watched.seen.at_least), millis(watched.seen.at_most));
    let Some(Hold { statement, transaction }) = watched.reported else { return seen };
    format!("{seen}; of the same call: {}, at most {}", millis(statement), millis(transaction))
}

fn hold_millis(seconds: Option<Spread>) -> String {
    seconds.map_or_else(|| "–".to_owned(), |spread| format!("{:.2}", spread.median * 1_000.0))
}

fn rate(series: &Series, measure: Measure) -> String {
    series.rate(measure).map_or_else(|| "–".to_owned(), |spread| grouped(spread.median))
}

fn or_dash(ratio: Option<Spread>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |Spread { median, min, max }| format!("{median:.2} ({min:.2}–{max:.2})"))
}

fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1_000.0)
}

/// A whole number with commas between its thousands.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(7.4), "7");
        assert_eq!(grouped(123.0), "123");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
    }
}
