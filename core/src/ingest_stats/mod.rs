//! What is counted of every queue, the table that all sessions count into, and what a transaction has not committed yet.

mod pending;
mod table;

pub use pending::Pending;
pub use table::Table;

use std::time::Duration;

/// Upper bounds of all buckets of lane lock waits but the last, in microseconds.
const BOUNDS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Most queues that are told apart.
pub const QUEUES: usize = 512;

/// What was counted of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs written.
    pub jobs: u64,
    /// Calls, and statements of COPY and INSERT.
    pub batches: u64,
    /// Jobs left out because their unique keys were taken.
    pub conflicts: u64,
    /// Bytes of the jobs written, as [`crate::job::Job::bytes`] has them.
    pub bytes: u64,
    /// Lane locks, by how long they were waited for: up to 1 ms, 10 ms, 100 ms, 1 s, and longer.
    pub lane_lock_waits: [u64; 5],
    /// The sum of these waits, in microseconds.
    pub lane_lock_wait_time: u64,
}

impl Counts {
    /// Nothing.
    pub const ZERO: Self = Self { jobs: 0, batches: 0, conflicts: 0, bytes: 0, lane_lock_waits: [0; 5], lane_lock_wait_time: 0 };

    /// A lane was locked after so long a wait.
    pub fn lane_locked(&mut self, wait: Duration) {
        let wait = wait.as_micros() as u64;
        let bucket = BOUNDS.iter().take_while(|bound| wait > **bound).count();
        self.lane_lock_waits[bucket] += 1;
        self.lane_lock_wait_time += wait;
    }

    /// Counts the same as `other` did. No sum grows beyond what SQL's `bigint` takes.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more).min(i64::MAX as u64);
        add(&mut self.jobs, other.jobs);
        add(&mut self.batches, other.batches);
        add(&mut self.conflicts, other.conflicts);
        add(&mut self.bytes, other.bytes);
        self.lane_lock_waits.iter_mut().zip(other.lane_lock_waits).for_each(|(sum, more)| add(sum, more));
        add(&mut self.lane_lock_wait_time, other.lane_lock_wait_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_buckets_with_upper_bounds() {
        let mut counts = Counts::ZERO;
        for micros in [0, 1_000, 1_001, 10_000, 100_000, 1_000_000, 1_000_001, u64::from(u32::MAX)] {
            counts.lane_locked(Duration::from_micros(micros));
        }
        assert_eq!(counts.lane_lock_waits, [2, 2, 1, 1, 2]);
        assert_eq!(counts.lane_lock_wait_time, 2_112_002 + u64::from(u32::MAX));
    }

    #[test]
    fn sums_stay_in_the_range_of_bigint() {
        let mut counts = Counts { bytes: i64::MAX as u64 - 1, ..Counts::ZERO };
        counts.add(&Counts { bytes: 5, jobs: 1, ..Counts::ZERO });
        assert_eq!((counts.bytes, counts.jobs), (i64::MAX as u64, 1));
    }
}
