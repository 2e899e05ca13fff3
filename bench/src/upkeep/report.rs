//! The results as Markdown.

use std::fmt::{self, Write as _};

use hdrhistogram::Histogram;

use super::delay::Delay;
use super::idle::Idle;
use super::{Plan, TICK};
use crate::report::grouped;

/// The most of a core that an idle worker may take.
const IDLE_SHARE: f64 = 0.005;

pub fn markdown(machine: &str, plan: Plan, idle: &Idle, delay: &Delay) -> Result<String, fmt::Error> {
    let mut out = format!("{machine}\n\n### Upkeep, idle\n\n| process | share of a core, median | most |\n|---|--:|--:|\n");
    for (name, shares) in &idle.processes {
        let mut sorted = shares.clone();
        sorted.sort_by(f64::total_cmp);
        let (median, most) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
        writeln!(out, "| {name} | {:.2} % | {:.2} % |", median * 100.0, most * 100.0)?;
    }
    let written: Vec<String> = idle.written.iter().map(|bytes| grouped(*bytes as f64)).collect();
    writeln!(out, "\nWritten to the log, bytes by round of {} s: {}.", plan.idle.as_secs(), written.join(", "))?;

    writeln!(out, "\n### Upkeep beside producers that saturate a lane\n")?;
    writeln!(out, "| | without: p50 ms | p95 | most | beside: p50 ms | p95 | most | times |\n|---|--:|--:|--:|--:|--:|--:|--:|")?;
    let rows = [
        ("prune of a slot, every second", &delay.quiet.prune, &delay.saturated.prune),
        ("promotion, every 250 ms", &delay.quiet.promotion, &delay.saturated.promotion),
    ];
    for (name, quiet, saturated) in rows {
        writeln!(out, "| {name} | {} | {} | {} |", milliseconds(quiet), milliseconds(saturated), quiet.len() + saturated.len())?;
    }
    writeln!(out, "\nThe producers enqueued {} jobs/s; {} prunes were blocked.", grouped(delay.rate), delay.blocked)?;
    targets(&mut out, idle, delay)?;
    Ok(out)
}

fn milliseconds(latencies: &Histogram<u64>) -> String {
    let at = |micros: u64| format!("{:.0}", micros as f64 / 1_000.0);
    format!("{} | {} | {}", at(latencies.value_at_quantile(0.5)), at(latencies.value_at_quantile(0.95)), at(latencies.max()))
}

fn targets(out: &mut String, idle: &Idle, delay: &Delay) -> fmt::Result {
    let most_idle = idle.processes.iter().flat_map(|(_, shares)| shares).fold(0.0, |most: f64, share| most.max(*share));
    // A prune is due within a tick of the request, a promotion a quarter of a second after its job.
    let tick = TICK.as_micros() as u64;
    let late = delay.saturated.prune.max().saturating_sub(tick).max(delay.saturated.promotion.max().saturating_sub(250_000));
    let lines = [
        ("an idle process takes less than 0.5 % of a core", most_idle < IDLE_SHARE, format!("{:.2} %", most_idle * 100.0)),
        ("an idle server writes no WAL", idle.written.iter().all(|bytes| *bytes == 0), format!("{:?} bytes", idle.written)),
        (
            "prune and promotion beside saturating producers are late by a tick (1 s) at most",
            late <= tick,
            format!("{:.0} ms", late as f64 / 1_000.0),
        ),
    ];
    writeln!(out, "\n### Targets of the upkeep\n\n| target | measured | met |\n|---|--:|---|")?;
    for (target, met, measured) in lines {
        writeln!(out, "| {target} | {measured} | {} |", if met { "yes" } else { "**no**" })?;
    }
    Ok(())
}
