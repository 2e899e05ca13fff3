//! How much is measured: the cases, and the calls of a block of each kind of candidate.

use crate::candidates::Pace;

/// Jobs per call unless the command line says otherwise.
pub const SIZES: [u32; 5] = [1, 100, 500, 1_000, 10_000];
/// The same for a quick run.
pub const QUICK_SIZES: [u32; 2] = [1, 100];

/// What all candidates are compared on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub size: usize,
    pub unique: bool,
}

/// One candidate's turn in a round: untimed calls first, then timed ones.
pub struct Turn {
    pub warmup_calls: usize,
    pub warmup_size: usize,
    pub calls: usize,
}

impl Case {
    pub fn admits(self, pace: Pace) -> bool {
        pace != Pace::Single || self.size <= 100
    }

    pub fn turn(self, pace: Pace, quick: bool) -> Turn {
        let (jobs, fewest) = match pace {
            Pace::Fast => (20_000, 5),
            Pace::Slow => (2_000, 1),
            Pace::Single => (2_000, 5),
        };
        let most = if pace == Pace::Single { 2_000 } else { 500 };
        let calls = (jobs / self.size).clamp(fewest, most);
        // TRUNCATE between the turns invalidates the backend's plans: they are made anew before timing,
        // past the five executions after which PostgreSQL may settle on a generic plan.
        let warmup_size = if pace == Pace::Slow { self.size.min(500) } else { self.size };
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
