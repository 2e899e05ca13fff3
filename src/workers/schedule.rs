//! When a task is due.

use std::time::Duration;

/// Pauses after failures double from the first to the second of these.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// When a task is to be run again.
#[derive(Default)]
pub struct Schedule {
    /// When it last began, by the clock of maintenance.
    last: Option<Duration>,
    /// How often in a row it failed.
    failures: u32,
}

impl Schedule {
    /// How long until it is due; nothing if it is.
    pub fn wait(&self, now: Duration, interval: Duration) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let wait = match self.failures {
            0 => interval,
            failures => (PAUSES[0] * (1 << (failures - 1).min(6))).min(PAUSES[1]),
        };
        // A clock that was set back is no reason to wait.
        wait.saturating_sub(now.checked_sub(last).unwrap_or(Duration::MAX))
    }

    /// It begins now.
    pub fn begin(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// It ended.
    pub fn ended(&mut self, failed: bool) {
        self.failures = if failed { self.failures.saturating_add(1) } else { 0 };
    }
}
