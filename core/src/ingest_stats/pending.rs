//! What a transaction counted and has not committed, apart for each subtransaction that may still be rolled back.

use super::{Counts, QUEUES};
use std::collections::HashMap;

/// Counts of a transaction: one entry a queue and open subtransaction, however many calls there were.
#[derive(Debug, Default)]
pub struct Pending {
    /// Innermost subtransaction last; only those that counted anything.
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    subtransaction: u32,
    queues: HashMap<Box<str>, Counts>,
    /// Further queues, more than would ever be told apart.
    others: Option<Counts>,
}

impl Pending {
    /// Counts something of a queue, or of one of many, in the subtransaction that is the innermost now.
    pub fn add(&mut self, subtransaction: u32, queue: &str, counts: &Counts) {
        let level = match self.levels.last_mut() {
            Some(level) if level.subtransaction == subtransaction => level,
            _ => {
                self.levels.push(Level { subtransaction, queues: HashMap::new(), others: None });
                let last = self.levels.len() - 1;
                &mut self.levels[last]
            }
        };
        level.add(queue, counts);
    }

    /// A subtransaction ends well: what it counted is its parent's now, who may still roll back.
    pub fn released(&mut self, subtransaction: u32, parent: u32) {
        while let Some(level) = self.levels.pop_if(|level| level.subtransaction >= subtransaction) {
            match self.levels.last_mut() {
                Some(below) if below.subtransaction >= parent => below.take(level),
                _ => return self.levels.push(Level { subtransaction: parent, ..level }),
            }
        }
    }

    /// A subtransaction is rolled back, and those with it that began within it: they have larger ids.
    pub fn rolled_back(&mut self, subtransaction: u32) {
        self.levels.retain(|level| level.subtransaction < subtransaction);
    }

    /// True if nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Everything that was counted; `None` for queues that are not told apart.
    pub fn counts(&self) -> impl Iterator<Item = (Option<&str>, &Counts)> {
        self.levels.iter().flat_map(|level| {
            let queues = level.queues.iter().map(|(queue, counts)| (Some(&**queue), counts));
            queues.chain(level.others.iter().map(|counts| (None, counts)))
        })
    }
}

impl Level {
    fn add(&mut self, queue: &str, counts: &Counts) {
        if let Some(sum) = self.queues.get_mut(queue) {
            sum.add(counts);
        } else if self.queues.len() < QUEUES {
            self.queues.insert(queue.into(), *counts);
        } else {
            self.others.get_or_insert_default().add(counts);
        }
    }

    fn take(&mut self, other: Self) {
        other.queues.iter().for_each(|(queue, counts)| self.add(queue, counts));
        if let Some(counts) = other.others {
            self.others.get_or_insert_default().add(&counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Counts = Counts { jobs: 1, ..Counts::ZERO };

    fn jobs(pending: &Pending, queue: Option<&str>) -> u64 {
        pending.counts().filter(|(name, _)| *name == queue).map(|(_, counts)| counts.jobs).sum()
    }

    #[test]
    fn calls_of_a_queue_are_one_entry() {
        let mut pending = Pending::default();
        (0..1000).for_each(|_| pending.add(1, "q", &ONE));
        assert_eq!(pending.counts().collect::<Vec<_>>(), [(Some("q"), &Counts { jobs: 1000, ..Counts::ZERO })]);
    }

    #[test]
    fn a_rollback_takes_what_began_within() {
        let mut pending = Pending::default();
        pending.add(1, "q", &ONE);
        pending.add(2, "q", &ONE);
        pending.add(3, "q", &ONE);
        pending.released(3, 2);
        pending.add(4, "q", &ONE);
        pending.rolled_back(2);
        assert_eq!((jobs(&pending, Some("q")), pending.levels.len()), (1, 1));
        pending.rolled_back(1);
        assert!(pending.is_empty());
    }

    #[test]
    fn what_was_released_goes_with_the_parent() {
        let mut pending = Pending::default();
        pending.add(3, "q", &ONE);
        pending.released(3, 2);
        assert_eq!(jobs(&pending, Some("q")), 1, "a parent that counted nothing before");
        pending.rolled_back(3);
        assert_eq!(jobs(&pending, Some("q")), 1, "nothing is left of the subtransaction itself");
        pending.released(7, 2);
        pending.add(8, "r", &ONE);
        pending.released(8, 2);
        assert_eq!(pending.levels.len(), 1);
        pending.rolled_back(2);
        assert!(pending.is_empty());
    }

    #[test]
    fn a_release_leaves_outer_levels_alone() {
        let mut pending = Pending::default();
        pending.add(1, "q", &ONE);
        pending.add(5, "q", &ONE);
        pending.released(5, 2);
        assert_eq!(pending.levels.iter().map(|level| level.subtransaction).collect::<Vec<_>>(), [1, 2]);
        pending.released(2, 1);
        assert_eq!((jobs(&pending, Some("q")), pending.levels.len()), (2, 1));
    }

    #[test]
    fn too_many_queues_are_counted_together() {
        let mut pending = Pending::default();
        (0..QUEUES + 5).for_each(|n| pending.add(1, &n.to_string(), &ONE));
        pending.add(1, "0", &ONE);
        pending.add(2, "new", &ONE);
        (0..QUEUES).for_each(|n| pending.add(2, &format!("n{n}"), &ONE));
        pending.released(2, 1);
        assert_eq!((jobs(&pending, None), jobs(&pending, Some("0"))), (5 + QUEUES as u64 + 1, 2));
        assert_eq!(pending.counts().count(), QUEUES + 1);
    }
}
