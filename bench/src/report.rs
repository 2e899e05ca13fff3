//! The results as Markdown.

use std::fmt::{self, Write as _};
use std::time::Duration;

use crate::candidates::{FLOOR, INSERT_MANY_COPY, PARAMS_COPY};
use crate::runner::Outcome;
use crate::stats::{Measure, Series, Spread};
use crate::targets::{TARGETS, Target};

/// What every candidate is compared to, beside its own figures.
const BASELINES: [&str; 3] = [PARAMS_COPY, INSERT_MANY_COPY, FLOOR];

/// A table for each case, then the list of targets.
pub fn markdown(machine: &str, skipped: &[&str], outcomes: &[Outcome]) -> Result<String, fmt::Error> {
    let mut out = format!("{machine}\n");
    for name in skipped {
        writeln!(out, "\nSkipped `{name}`: the server has no extension awa_ingest to create.")?;
    }
    for outcome in outcomes {
        case_table(&mut out, outcome)?;
    }
    target_table(&mut out, outcomes)?;
    Ok(out)
}

fn case_table(out: &mut String, outcome: &Outcome) -> fmt::Result {
    let keys = if outcome.case.unique { "with" } else { "without" };
    writeln!(out, "\n### Batches of {}, {keys} unique keys\n", grouped(outcome.case.size as f64))?;
    write!(out, "| path | jobs/s | p50 ms | p95 ms | p99 ms | rounds (calls) |")?;
    for baseline in BASELINES {
        write!(out, " ÷ {baseline} |")?;
    }
    writeln!(out, " jobs per server CPU second |")?;
    writeln!(out, "|---|{}", "--:|".repeat(BASELINES.len() + 6))?;

    for (name, series) in outcome.in_order() {
        write!(out, "| {name} | {} |", rate(series, Measure::Clock))?;
        for quantile in [0.50, 0.95, 0.99] {
            write!(out, " {} |", millis(series.latency(quantile)))?;
        }
        write!(out, " {} ({}) |", series.rounds(), grouped(series.calls() as f64))?;
        for baseline in BASELINES {
            let ratio = (baseline != name).then(|| ratio(outcome, name, baseline, Measure::Clock));
            write!(out, " {} |", or_dash(ratio.flatten()))?;
        }
        writeln!(out, " {} |", rate(series, Measure::Processor))?;
    }
    Ok(())
}

/// The verdict is on jobs without unique keys; the figure with them stands beside it.
fn target_table(out: &mut String, outcomes: &[Outcome]) -> fmt::Result {
    writeln!(out, "\n### Targets\n")?;
    writeln!(out, "| issue | target | measured | | with unique keys |\n|--:|---|--:|---|--:|")?;
    for target in &TARGETS {
        let measured = measured(target, outcomes, false);
        let verdict = match measured {
            None => "not measured",
            Some(ratio) if ratio.median >= target.at_least => "met",
            Some(_) => "**not met**",
        };
        let unit = match target.measure {
            Measure::Clock => "jobs/s",
            Measure::Processor => "jobs per server CPU second",
        };
        writeln!(
            out,
            "| {} | {} at {}: at least {} × {}, {unit} | {} | {verdict} | {} |",
            target.issue,
            target.subject,
            grouped(target.size as f64),
            target.at_least,
            target.baseline,
            or_dash(measured),
            or_dash(self::measured(target, outcomes, true)),
        )?;
    }
    Ok(())
}

fn measured(target: &Target, outcomes: &[Outcome], unique: bool) -> Option<Spread> {
    let matches = |outcome: &&Outcome| outcome.case.size == target.size && outcome.case.unique == unique;
    let outcome = outcomes.iter().find(matches)?;
    ratio(outcome, target.subject, target.baseline, target.measure)
}

fn ratio(outcome: &Outcome, subject: &str, baseline: &str, measure: Measure) -> Option<Spread> {
    outcome.series(subject)?.ratio_to(outcome.series(baseline)?, measure)
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
fn grouped(number: f64) -> String {
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
