//! One line about where the figures come from.

use std::thread::available_parallelism;
use std::{env, fs};

/// Processor, cores, server version, date and the options of this run.
pub fn describe(server_version: &str, date: &str) -> String {
    let cores = available_parallelism().map_or(0, usize::from);
    let processor = processor();
    let options: Vec<String> = env::args().skip(1).collect();
    let options = if options.is_empty() { "no options".to_owned() } else { options.join(" ") };
    format!("{processor}, {cores} cores, PostgreSQL {server_version}, {date}, {options}")
}

fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown processor".to_owned(), |(_, model)| model.trim().to_owned())
}
