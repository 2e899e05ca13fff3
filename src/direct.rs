//! The direct path of ready rows and their segments: many at a time, past the executor.

use crate::spool::Ready;
use crate::table::{Column, Table};
use pgrx::pg_sys::{self, Datum, Oid};

/// Columns of a partition of `ready_entries`, with their types.
pub const COLUMNS: [Column; 18] = [
    ("ready_slot", pg_sys::INT4OID),
    ("ready_generation", pg_sys::INT8OID),
    ("job_id", pg_sys::INT8OID),
    ("kind", pg_sys::TEXTOID),
    ("queue", pg_sys::TEXTOID),
    ("args", pg_sys::JSONBOID),
    ("priority", pg_sys::INT2OID),
    ("attempt", pg_sys::INT2OID),
    ("run_lease", pg_sys::INT8OID),
    ("max_attempts", pg_sys::INT2OID),
    ("lane_seq", pg_sys::INT8OID),
    ("enqueue_shard", pg_sys::INT2OID),
    ("run_at", pg_sys::TIMESTAMPTZOID),
    ("attempted_at", pg_sys::TIMESTAMPTZOID),
    ("created_at", pg_sys::TIMESTAMPTZOID),
    ("unique_key", pg_sys::BYTEAOID),
    ("unique_states", pg_sys::TEXTOID),
    ("payload", pg_sys::JSONBOID),
];

/// Columns of a partition of `ready_segments`.
pub const SEGMENT_COLUMNS: [Column; 9] = [
    ("ready_slot", pg_sys::INT4OID),
    ("ready_generation", pg_sys::INT8OID),
    ("queue", pg_sys::TEXTOID),
    ("priority", pg_sys::INT2OID),
    ("enqueue_shard", pg_sys::INT2OID),
    ("first_lane_seq", pg_sys::INT8OID),
    ("next_lane_seq", pg_sys::INT8OID),
    ("first_run_at", pg_sys::TIMESTAMPTZOID),
    ("created_at", pg_sys::TIMESTAMPTZOID),
];

/// Rows of a batch, and about their bytes: COPY's own numbers.
const BATCH_ROWS: usize = 1000;
const BATCH_BYTES: usize = 65_536;

/// What all rows of a call have in common.
pub struct Common {
    /// Ring slot.
    pub slot: i32,
    /// Its generation.
    pub generation: i64,
    /// Each lane's first position.
    pub starts: Vec<i64>,
    /// The call's clock, a `timestamptz`.
    pub now: i64,
}

/// A partition of `ready_entries` that rows are written to.
pub struct Writer {
    common: Common,
    table: Table,
    bytes: usize,
    rows: u64,
}

impl Writer {
    /// Opens the partition, on which the caller holds the lock of a writer and has the right to insert. Gives `common` back where rows must
    /// go through the executor.
    pub fn open(partition: Oid, common: Common) -> Result<Self, Common> {
        match Table::open(partition, &COLUMNS, false) {
            Some(table) => Ok(Self { common, table, bytes: 0, rows: 0 }),
            None => Err(common),
        }
    }

    /// Appends a row.
    pub fn put(&mut self, row: &Ready) {
        let position = self.common.starts.get(row.lane).copied().unwrap_or_default() + row.position;
        self.bytes += self.table.add(ready(row, &self.common, position));
        self.rows += 1;
        if self.table.batch() == BATCH_ROWS || self.bytes >= BATCH_BYTES {
            self.table.write();
            self.bytes = 0;
        }
    }

    /// Writes what is left, and closes the partition. Returns how many rows were written.
    pub fn finish(mut self) -> u64 {
        self.table.write();
        self.table.close();
        self.rows
    }
}

/// The row of a ready job at a position of its lane.
pub fn ready(row: &Ready, common: &Common, position: i64) -> [Option<Datum>; 18] {
    let now = Some(Datum::from(common.now));
    let zero = Some(Datum::from(0));
    [
        Some(Datum::from(common.slot)),
        Some(Datum::from(common.generation)),
        row.job_id,
        row.kind,
        row.queue,
        row.args,
        row.priority,
        zero,
        zero,
        row.max_attempts,
        Some(Datum::from(position)),
        row.shard,
        row.run_at.or(now),
        None,
        now,
        row.unique_key,
        row.unique_states,
        row.payload,
    ]
}
