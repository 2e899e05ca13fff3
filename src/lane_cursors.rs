//! Where the lanes of a storage stand: the next position that is handed out, and the next one that is claimed.

use crate::sequence;
use crate::spi::{Argument, Rows, Session, View, argument};
use crate::statements::Statement;
use crate::storage::Storage;
use pgrx::pg_sys::Oid;

/// A lane with both heads and both sequences.
pub struct LaneCursors {
    /// Stored queue name.
    pub queue: String,
    /// 1 to 4.
    pub priority: i16,
    /// 0 to 63.
    pub shard: i16,
    /// The sequence that is the claim cursor.
    pub claim: Sequence,
    /// The sequence that hands out positions.
    pub enqueue: Sequence,
}

/// A sequence of a lane.
pub struct Sequence {
    /// Its oid.
    pub oid: Oid,
    /// Its name, in the storage's schema.
    pub name: String,
}

impl Sequence {
    /// The value that comes next.
    pub fn next(&self) -> Option<i64> {
        sequence::position(self.oid)
    }
}

impl LaneCursors {
    /// Queue, priority and shard.
    pub fn key(&self) -> [Argument; 3] {
        [argument(&*self.queue), argument(self.priority), argument(self.shard)]
    }
}

/// All lanes that have all their parts. Nothing stays locked but the head tables: thousands of sequences would fill the lock table.
pub fn all(session: &Session, storage: &Storage) -> Vec<LaneCursors> {
    let sequence = |rows: &Rows, row, column| {
        let oid = Oid::from(rows.get::<i64>(row, column)? as u32);
        Some(Sequence { oid, name: rows.get(row, column + 1)? })
    };
    let read = |rows: &Rows| {
        let lane = |row| {
            Some(LaneCursors {
                queue: rows.get(row, 0)?,
                priority: rows.get(row, 1)?,
                shard: rows.get(row, 2)?,
                claim: sequence(rows, row, 3)?,
                enqueue: sequence(rows, row, 5)?,
            })
        };
        (0..rows.count).filter_map(lane).collect()
    };
    session.query(Statement::LaneCursors, &storage.target, &[argument(storage.schema_oid)], View::Latest, read)
}

/// The lanes as arrays for a statement: queues, priorities and shards.
pub fn arrays<'l>(lanes: impl Iterator<Item = &'l LaneCursors> + Clone) -> [Argument; 3] {
    let queues: Vec<&str> = lanes.clone().map(|lane| &*lane.queue).collect();
    let priorities: Vec<i16> = lanes.clone().map(|lane| lane.priority).collect();
    let shards: Vec<i16> = lanes.map(|lane| lane.shard).collect();
    [argument(queues), argument(priorities), argument(shards)]
}
