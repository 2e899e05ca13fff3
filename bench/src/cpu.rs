//! Processor time of a server process, from Linux's /proc.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Linux reports these times in hundredths of a second on every architecture.
const TICKS_PER_SECOND: u64 = 100;

/// The time that a backend has spent on a processor so far, in user and kernel mode.
pub fn time_of(pid: i32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = ticks(&stat).with_context(|| format!("cannot understand {path}"))?;
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// utime + stime, the 14th and 15th field. The second, the command's name, may contain spaces.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let utime: u64 = fields.next()?.parse().ok()?;
    let stime: u64 = fields.next()?.parse().ok()?;
    Some(utime + stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_user_and_kernel_time_behind_a_name_with_spaces() {
        let stat = "42 (postgres: a) b) S 1 42 42 0 -1 4194560 900 0 1 0 37 5 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some(42));
    }
}
