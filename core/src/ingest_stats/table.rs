//! The table that all sessions of a server count into: of a fixed size, without pointers, and small enough for the stack.

use super::{Counts, QUEUES};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes for the names of all queues: most are short, and the longest has 800.
const NAMES: usize = 64 * 1024;

/// Databases whose further queues can be counted together.
const DATABASES: usize = 64;

/// Counts by database (its oid) and queue.
#[derive(Clone, Copy)]
pub struct Table {
    /// Open addressing: a queue is in the first free row at or behind the place that its hash says. Rows are freed all at once.
    queues: [Row; QUEUES],
    /// What was counted of queues that found no row, a database each.
    others: [Others; DATABASES],
    names: [u8; NAMES],
    /// Bytes of names in use.
    named: usize,
}

/// A queue, or free if the database is 0.
#[derive(Clone, Copy)]
struct Row {
    database: u32,
    hash: u32,
    name: (usize, usize),
    counts: Counts,
}

/// A database, or free if it is 0.
#[derive(Clone, Copy)]
struct Others {
    database: u32,
    counts: Counts,
}

impl Table {
    /// Without counts.
    pub const EMPTY: Self = Self {
        queues: [Row { database: 0, hash: 0, name: (0, 0), counts: Counts::ZERO }; QUEUES],
        others: [Others { database: 0, counts: Counts::ZERO }; DATABASES],
        names: [0; NAMES],
        named: 0,
    };

    /// Counts something of a queue. Once the table is full, queues that are not in it count together, as for `None`; beyond 64
    /// databases with such queues they are not counted. Neither allocates nor fails: it is called with a lock held.
    pub fn add(&mut self, database: u32, queue: Option<&str>, counts: &Counts) {
        let of_queue = queue.and_then(|queue| self.queue(database, queue));
        let index = match of_queue {
            Some(index) => return self.queues[index].counts.add(counts),
            None => self.others.iter().position(|others| others.database == database || others.database == 0),
        };
        if let Some(others) = index.and_then(|index| self.others.get_mut(index)) {
            others.database = database;
            others.counts.add(counts);
        }
    }

    /// The counts of a database; `None` is for queues that are not told apart.
    pub fn of(&self, database: u32) -> impl Iterator<Item = (Option<&[u8]>, &Counts)> {
        let queues = self.queues.iter().filter(move |row| row.database == database);
        let others = self.others.iter().filter(move |others| others.database == database);
        queues.map(|row| (Some(self.name(row)), &row.counts)).chain(others.map(|others| (None, &others.counts)))
    }

    /// The databases that anything was counted of.
    pub fn databases(&self) -> BTreeSet<u32> {
        let all = self.queues.iter().map(|row| row.database).chain(self.others.iter().map(|others| others.database));
        all.filter(|database| *database != 0).collect()
    }

    /// Forgets databases, and makes room for others.
    pub fn forget(&mut self, is_forgotten: impl Fn(u32) -> bool) {
        let before = Box::new(*self);
        *self = Self::EMPTY;
        for row in before.queues.iter().filter(|row| row.database != 0 && !is_forgotten(row.database)) {
            if let Some(index) = self.place(row.database, row.hash, before.name(row)) {
                self.queues[index].counts = row.counts;
            }
        }
        let kept = before.others.iter().filter(|others| others.database != 0 && !is_forgotten(others.database));
        self.others.iter_mut().zip(kept).for_each(|(free, kept)| *free = *kept);
    }

    fn name(&self, row: &Row) -> &[u8] {
        let (start, length) = row.name;
        self.names.get(start..start + length).unwrap_or_default()
    }

    fn queue(&mut self, database: u32, queue: &str) -> Option<usize> {
        let mut hasher = DefaultHasher::new();
        (database, queue).hash(&mut hasher);
        self.place(database, hasher.finish() as u32, queue.as_bytes())
    }

    /// The queue's row, which is made if there is room for it and its name.
    fn place(&mut self, database: u32, hash: u32, name: &[u8]) -> Option<usize> {
        let places = (0..QUEUES).map(|step| (hash as usize).wrapping_add(step) % QUEUES);
        for index in places {
            let row = self.queues[index];
            if row.database == 0 {
                return self.name_row(index, database, hash, name);
            }
            if (row.database, row.hash) == (database, hash) && self.name(&row) == name {
                return Some(index);
            }
        }
        None
    }

    fn name_row(&mut self, index: usize, database: u32, hash: u32, name: &[u8]) -> Option<usize> {
        let (start, length) = (self.named, name.len());
        self.names.get_mut(start..start + length)?.copy_from_slice(name);
        self.named += length;
        self.queues[index] = Row { database, hash, name: (start, length), counts: Counts::ZERO };
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Counts = Counts { jobs: 1, ..Counts::ZERO };

    fn jobs(table: &Table, database: u32) -> Vec<(Option<String>, u64)> {
        let name = |name: Option<&[u8]>| name.map(|name| String::from_utf8_lossy(name).into_owned());
        let mut rows: Vec<_> = table.of(database).map(|(queue, counts)| (name(queue), counts.jobs)).collect();
        rows.sort();
        rows
    }

    #[test]
    fn queues_are_told_apart_by_name_and_database() {
        let mut table = Table::EMPTY;
        for (database, queue) in [(1, "a"), (1, "b"), (2, "a"), (1, "a"), (1, "")] {
            table.add(database, Some(queue), &ONE);
        }
        let named = |queue: &str, jobs| (Some(queue.to_owned()), jobs);
        assert_eq!(jobs(&table, 1), [named("", 1), named("a", 2), named("b", 1)]);
        assert_eq!(jobs(&table, 2), [named("a", 1)]);
        assert_eq!(jobs(&table, 3), []);
        assert_eq!(table.databases(), BTreeSet::from([1, 2]));
    }

    #[test]
    fn a_full_table_counts_new_queues_together_and_known_ones_apart() {
        let mut table = Table::EMPTY;
        (0..QUEUES + 3).for_each(|n| table.add(1, Some(&n.to_string()), &ONE));
        table.add(1, Some("7"), &ONE);
        table.add(2, Some("7"), &ONE);
        table.add(1, None, &ONE);
        assert_eq!(table.of(1).count(), QUEUES + 1);
        assert!(jobs(&table, 1).contains(&(None, 4)) && jobs(&table, 1).contains(&(Some("7".into()), 2)));
        assert_eq!(jobs(&table, 2), [(None, 1)]);
    }

    #[test]
    fn long_names_use_up_the_room_for_names() {
        let mut table = Table::EMPTY;
        let names: Vec<String> = (0..100).map(|n| format!("{n:0800}")).collect();
        names.iter().for_each(|name| table.add(1, Some(name), &ONE));
        let told_apart = NAMES / 800;
        assert_eq!(table.of(1).count(), told_apart + 1);
        assert!(jobs(&table, 1).contains(&(None, 100 - told_apart as u64)));
        assert!(jobs(&table, 1).contains(&(Some(names[told_apart - 1].clone()), 1)));
        table.add(1, Some("short"), &ONE);
        assert!(jobs(&table, 1).contains(&(Some("short".into()), 1)), "what fits behind them is told apart");
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut table = Table::EMPTY;
        (0..QUEUES as u32 + 10).for_each(|n| table.add(1 + n % 3, Some(&format!("queue {n}")), &ONE));
        let kept = jobs(&table, 2);
        table.forget(|database| database != 2);
        assert_eq!((jobs(&table, 1), jobs(&table, 2), jobs(&table, 3)), (vec![], kept, vec![]));
        table.add(1, Some("new"), &ONE);
        assert_eq!(jobs(&table, 1), [(Some("new".into()), 1)]);
        table.forget(|_| true);
        assert_eq!((table.databases(), table.named), (BTreeSet::new(), 0));
    }

    #[test]
    fn databases_beyond_the_room_are_not_counted() {
        let mut table = Table::EMPTY;
        (1..=DATABASES as u32 + 1).for_each(|database| table.add(database, None, &ONE));
        assert_eq!(jobs(&table, DATABASES as u32), [(None, 1)]);
        assert_eq!(jobs(&table, DATABASES as u32 + 1), []);
    }

    /// It goes over the postmaster's stack, several times in a debug build.
    #[test]
    fn it_is_small() {
        assert!(size_of::<Table>() < 160 * 1024, "{} bytes", size_of::<Table>());
    }
}
