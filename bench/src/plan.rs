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
/// Larger batches are not for ways that call a function for each job.
const LARGEST_OF_SINGLE: usize = 500;
/// In larger batches, slow ways take part in every third round only.
const LARGEST_IN_EVERY_ROUND: usize = 500;
/// Jobs of a batch that is replayed.
const REPLAYED: usize = 185;
/// Rounds of batches beyond [`LARGEST_OF_CLIENTS`], of which every one has enough jobs for a steady figure.
const ROUNDS_OF_LARGE: usize = 5;
/// Calls of a turn after which the server is asked for its summary.
const SUMMARIES: usize = 5;

/// What all candidates are compared on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub size: usize,
    pub unique: bool,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ways to enqueue from the jobs as an application holds them.
    Clients,
    /// The bytes to send lie ready before the timing: the server's work is compared, not that of clients.
    Ready,
    /// Several producers send jobs with unique keys, half of which are claimed.
    Replay,
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
        match self.kind {
            Kind::Clients => Ok(()),
            Kind::Ready => write!(f, ", bytes ready"),
            Kind::Replay => write!(f, ", half of them claimed"),
        }
    }
}

impl Turn {
    /// Whether the server is asked for its summary after this timed call: rarely enough not to show in the figures.
    pub fn asks_after(&self, call: usize) -> bool {
        call.is_multiple_of(self.calls.div_ceil(SUMMARIES))
    }
}

impl Case {
    pub const REPLAY: Self = Self { size: REPLAYED, unique: true, kind: Kind::Replay };

    /// The cases of batches of `size` jobs.
    pub fn of(size: usize, unique: bool) -> impl Iterator<Item = Self> {
        let clients = (size <= LARGEST_OF_CLIENTS).then_some(Self { size, unique, kind: Kind::Clients });
        let ready = (size >= SMALLEST_READY).then_some(Self { size, unique, kind: Kind::Ready });
        clients.into_iter().chain(ready)
    }

    /// Large batches take minutes: with unique keys only where these are asked for.
    pub fn is_long(self) -> bool {
        self.size > LARGEST_OF_CLIENTS
    }

    pub fn admits(self, pace: Pace) -> bool {
        match (self.kind, pace) {
            (Kind::Clients, Pace::Single(_)) => self.size <= LARGEST_OF_SINGLE,
            (Kind::Clients, Pace::Producers { .. }) => false,
            (Kind::Clients, _) | (Kind::Ready, Pace::Streaming) | (Kind::Replay, Pace::Producers { .. }) => true,
            (Kind::Ready | Kind::Replay, _) => false,
        }
    }

    /// Whether a candidate has a turn in this round. Those that are slow leave out two of three measured rounds of large batches. Round 0
    /// is the warm-up.
    pub fn has_turn(self, pace: Pace, round: usize) -> bool {
        self.admits(pace) && (pace != Pace::Slow || self.size <= LARGEST_IN_EVERY_ROUND || round % 3 == 1)
    }

    /// Of the jobs of a call, those that are not there already.
    pub fn enqueued(self) -> usize {
        if self.kind == Kind::Replay { self.size / 2 } else { self.size }
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
            Pace::Steady => (10_000, 1),
            Pace::Single(jobs) => (jobs, 5),
            Pace::Producers { count, calls_each } => (count * calls_each * self.size, 1),
        };
        let most = if matches!(pace, Pace::Single(_)) { 2_000 } else { 500 };
        let calls = (jobs / self.size).clamp(fewest, most);
        // TRUNCATE between the turns invalidates the backend's plans: they are made anew before timing,
        // past the five executions after which PostgreSQL may settle on a generic plan.
        let warmup_size = self.size.min(if pace == Pace::Slow { 500 } else { 10_000 });
        let producers = pace.producers();
        let warmup_calls = producers * (200 / self.size).max(1);
        if quick {
            return Turn { warmup_calls: producers, warmup_size, calls: calls.min(2 * producers) };
        }
        Turn { warmup_calls, warmup_size, calls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_million_are_streamed_only() {
        let cases: Vec<Case> = Case::of(1_000_000, false).collect();
        assert!(cases.iter().all(|case| case.kind == Kind::Ready && !case.admits(Pace::Fast)));
        assert_eq!(cases.iter().map(|case| case.turn(Pace::Streaming, false).calls).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn each_producer_warms_up_once_and_has_all_its_calls() {
        let turn = Case::REPLAY.turn(Pace::Producers { count: 16, calls_each: 20 }, false);
        assert_eq!((turn.warmup_calls, turn.calls), (16, 320));
    }

    #[test]
    fn the_server_is_asked_five_times_a_turn() {
        for calls in [1, 5, 40] {
            let turn = Turn { warmup_calls: 0, warmup_size: 0, calls };
            assert_eq!((0..calls).filter(|&call| turn.asks_after(call)).count(), calls.min(SUMMARIES));
        }
    }
}
