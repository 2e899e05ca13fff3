//! How much is measured: the cases, and the calls of a block of each kind of candidate.

use std::fmt;

use crate::candidates::Pace;
use crate::report::grouped;

/// Jobs per call unless the command line says otherwise.
pub const SIZES: [u32; 5] = [1, 100, 500, 10_000, 1_000_000];
/// The same for a quick run.
pub const QUICK_SIZES: [u32; 3] = [1, 100, 500];

/// Larger batches are for the ways that stream: their jobs are held as bytes only.
const LARGEST_OF_CLIENTS: usize = 100_000;
/// Smaller batches are not measured with ready bytes: they have next to none.
const SMALLEST_READY: usize = 500;
/// Rounds of batches beyond [`LARGEST_OF_CLIENTS`], of which every one has enough jobs for a steady figure.
const ROUNDS_OF_LARGE: usize = 5;
/// Calls of a turn after which the server is asked for its summary.
const SUMMARIES: usize = 5;

/// What all candidates are compared on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub size: usize,
    pub unique: bool,
    /// Whether the bytes to send lie ready before the timing: the server's work is compared then, not that of clients.
    pub ready: bool,
}

/// One candidate's turn in a round: untimed calls first, then timed ones.
pub struct Turn {
    pub warmup_calls: usize,
    pub warmup_size: usize,
    pub calls: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let keys = if self.unique { "with" } else { "without" };
        write!(f, "batches of {}, {keys} unique keys", grouped(self.size as f64))?;
        if self.ready { write!(f, ", bytes ready") } else { Ok(()) }
    }
}

impl Turn {
    /// Whether the server is asked for its summary after this timed call: rarely enough not to show in the figures.
    pub fn asks_after(&self, call: usize) -> bool {
        call.is_multiple_of(self.calls.div_ceil(SUMMARIES))
    }
}

impl Case {
    /// The cases of batches of `size` jobs.
    pub fn of(size: usize, unique: bool) -> impl Iterator<Item = Self> {
        let clients = (size <= LARGEST_OF_CLIENTS).then_some(Self { size, unique, ready: false });
        let ready = (size >= SMALLEST_READY).then_some(Self { size, unique, ready: true });
        clients.into_iter().chain(ready)
    }

    /// Large batches take minutes: with unique keys only where these are asked for.
    pub fn is_long(self) -> bool {
        self.size > LARGEST_OF_CLIENTS
    }

    pub fn admits(self, pace: Pace) -> bool {
        match pace {
            Pace::Streaming => true,
            Pace::Fast | Pace::Slow => !self.ready,
            Pace::Single => !self.ready && self.size <= 100,
        }
    }

    /// The measured rounds, out of those asked for.
    pub fn rounds(self, asked: usize) -> usize {
        if self.is_long() { asked.min(ROUNDS_OF_LARGE) } else { asked }
    }

    pub fn turn(self, pace: Pace, quick: bool) -> Turn {
        let (jobs, fewest) = match pace {
            Pace::Streaming if self.is_long() => (self.size, 1),
            Pace::Fast | Pace::Streaming => (20_000, 5),
            Pace::Slow => (2_000, 1),
            Pace::Single => (2_000, 5),
        };
        let most = if pace == Pace::Single { 2_000 } else { 500 };
        let calls = (jobs / self.size).clamp(fewest, most);
        // TRUNCATE between the turns invalidates the backend's plans: they are made anew before timing,
        // past the five executions after which PostgreSQL may settle on a generic plan.
        let warmup_size = self.size.min(if pace == Pace::Slow { 500 } else { 10_000 });
        let warmup_calls = (200 / self.size).max(1);
        if quick {
            return Turn { warmup_calls: 1, warmup_size, calls: calls.min(2) };
        }
        Turn { warmup_calls, warmup_size, calls }
    }
}

/// Slow candidates take part in the first of every three measured rounds. Round 0 is the warm-up.
pub fn takes_part(pace: Pace, round: usize) -> bool {
    pace != Pace::Slow || round % 3 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_million_are_streamed_only() {
        let cases: Vec<Case> = Case::of(1_000_000, false).collect();
        assert!(cases.iter().all(|case| case.ready && !case.admits(Pace::Fast)));
        assert_eq!(cases.iter().map(|case| case.turn(Pace::Streaming, false).calls).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn the_server_is_asked_five_times_a_turn() {
        for calls in [1, 5, 40] {
            let turn = Turn { warmup_calls: 0, warmup_size: 0, calls };
            assert_eq!((0..calls).filter(|&call| turn.asks_after(call)).count(), calls.min(SUMMARIES));
        }
    }
}
