//! The direct path: ready rows go into their partition many at a time, as COPY's do, past the executor. Taken where a plain INSERT would do
//! nothing else: no triggers, rules, row security or generated columns, and the columns that this module knows.
#![allow(unsafe_code)]

use crate::spool::Ready;
use pgrx::pg_sys::{self, Datum, EState, Oid, Relation, ResultRelInfo, TupleDesc, TupleTableSlot};
use pgrx::{PgMemoryContexts, PgTupleDesc};

/// Columns of a partition of `ready_entries`, with their types.
const COLUMNS: [(&str, Oid); 18] = [
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

/// A partition that rows are written to.
pub struct Writer {
    common: Common,
    relation: Relation,
    state: *mut EState,
    target: *mut ResultRelInfo,
    /// What writing a batch allocates.
    scratch: PgMemoryContexts,
    /// Each keeps its tuple until it gets the next.
    slots: Vec<*mut TupleTableSlot>,
    filled: usize,
    bytes: usize,
    rows: u64,
}

impl Writer {
    /// Opens the partition, on which the caller holds the lock of a writer and has the right to insert. Gives `common` back where rows must
    /// go through the executor.
    pub fn open(partition: Oid, common: Common) -> Result<Self, Common> {
        // SAFETY: the relation is locked; everything is allocated in the current memory context, which an error leaves to its owner.
        unsafe {
            let relation = pg_sys::relation_open(partition, pg_sys::NoLock as i32);
            if !is_plain(relation) {
                pg_sys::relation_close(relation, pg_sys::NoLock as i32);
                return Err(common);
            }
            let state = pg_sys::CreateExecutorState();
            let target = PgMemoryContexts::For((*state).es_query_cxt)
                .switch_to(|_| pg_sys::palloc0(size_of::<ResultRelInfo>()).cast::<ResultRelInfo>());
            (*target).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            pg_sys::InitResultRelInfo(target, relation, 0, std::ptr::null_mut(), 0);
            pg_sys::ExecOpenIndices(target, false);
            let scratch = PgMemoryContexts::For((*pg_sys::MakePerTupleExprContext(state)).ecxt_per_tuple_memory);
            Ok(Self { common, relation, state, target, scratch, slots: Vec::new(), filled: 0, bytes: 0, rows: 0 })
        }
    }

    /// Appends a row.
    pub fn put(&mut self, row: &Ready) {
        let Common { slot, generation, starts, now } = &self.common;
        let now = Some(Datum::from(*now));
        let zero = Some(Datum::from(0));
        let position = starts.get(row.lane).copied().unwrap_or_default() + row.position;
        self.form([
            Some(Datum::from(*slot)),
            Some(Datum::from(*generation)),
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
        ]);
        if self.filled == BATCH_ROWS || self.bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Writes what is left, and closes the partition. Returns how many rows were written.
    pub fn finish(mut self) -> u64 {
        self.flush();
        // SAFETY: all of it was made by `open` and `form`; the lock on the relation stays.
        unsafe {
            self.slots.iter().for_each(|slot| pg_sys::ExecDropSingleTupleTableSlot(*slot));
            pg_sys::ExecCloseIndices(self.target);
            pg_sys::FreeExecutorState(self.state);
            pg_sys::relation_close(self.relation, pg_sys::NoLock as i32);
        }
        self.rows
    }

    /// Makes the row a tuple of the batch.
    fn form(&mut self, row: [Option<Datum>; 18]) {
        let mut values = row.map(|value| value.unwrap_or(Datum::from(0)));
        let mut nulls = row.map(|value| value.is_none());
        // SAFETY: `is_plain` has seen that the relation has these columns. The tuple is a copy that its slot owns.
        unsafe {
            let descriptor = (*self.relation).rd_att;
            if self.filled == self.slots.len() {
                self.slots.push(pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsHeapTuple));
            }
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            self.bytes += (*tuple).t_len as usize;
            pg_sys::ExecStoreHeapTuple(tuple, self.slots[self.filled], true);
        }
        self.filled += 1;
    }

    fn flush(&mut self) {
        let batch = &mut self.slots[..self.filled];
        if batch.is_empty() {
            return;
        }
        // SAFETY: the slots hold tuples of the relation, which is open with its indexes. All rows are of one partition, so that the first
        // stands for them all there.
        unsafe {
            let (relation, state, target) = (self.relation, self.state, self.target);
            self.scratch.switch_to(|_| {
                if self.rows == 0 && (*(*relation).rd_rel).relispartition {
                    pg_sys::ExecPartitionCheck(target, batch[0], state, true);
                }
                if !(*(*relation).rd_att).constr.is_null() {
                    batch.iter().for_each(|slot| pg_sys::ExecConstraints(target, *slot, state));
                }
                let command = pg_sys::GetCurrentCommandId(true);
                pg_sys::heap_multi_insert(relation, batch.as_mut_ptr(), batch.len() as i32, command, 0, std::ptr::null_mut());
                insert_index_tuples(target, batch, state);
            });
            self.scratch.reset();
        }
        self.rows += self.filled as u64;
        (self.filled, self.bytes) = (0, 0);
        pgrx::check_for_interrupts!();
    }
}

/// Index by index, each over the whole batch, so that its pages stay in the processor's caches.
///
/// # Safety
/// The slots hold tuples that were just inserted.
unsafe fn insert_index_tuples(target: *mut ResultRelInfo, batch: &[*mut TupleTableSlot], state: *mut EState) {
    // SAFETY: the caller vouches for the slots. The target shows one of its indexes at a time, and all of them again afterwards. Nothing is
    // deferred, since that would take a trigger.
    unsafe {
        let (count, descriptors, infos) =
            ((*target).ri_NumIndices, (*target).ri_IndexRelationDescs, (*target).ri_IndexRelationInfo);
        for index in 0..count as usize {
            (*target).ri_NumIndices = 1;
            (*target).ri_IndexRelationDescs = descriptors.add(index);
            (*target).ri_IndexRelationInfo = infos.add(index);
            batch.iter().for_each(|slot| insert_one(target, *slot, state));
        }
        (*target).ri_NumIndices = count;
        (*target).ri_IndexRelationDescs = descriptors;
        (*target).ri_IndexRelationInfo = infos;
    }
}

/// # Safety
/// As for [`insert_index_tuples`].
unsafe fn insert_one(target: *mut ResultRelInfo, slot: *mut TupleTableSlot, state: *mut EState) {
    let none = std::ptr::null_mut();
    // SAFETY: passed on to the caller.
    unsafe {
        #[cfg(feature = "pg15")]
        pg_sys::ExecInsertIndexTuples(target, slot, state, false, false, std::ptr::null_mut(), none);
        #[cfg(not(feature = "pg15"))]
        pg_sys::ExecInsertIndexTuples(target, slot, state, false, false, std::ptr::null_mut(), none, false);
    }
}

/// Whether a plain INSERT would do with a row what this module does.
///
/// # Safety
/// The relation is open.
unsafe fn is_plain(relation: Relation) -> bool {
    // SAFETY: the caller vouches for the relation.
    unsafe {
        let class = &*(*relation).rd_rel;
        class.relkind as u8 == pg_sys::RELKIND_RELATION
            && class.relam == pg_sys::HEAP_TABLE_AM_OID
            && !(class.relhastriggers || class.relhasrules || class.relrowsecurity)
            && has_known_columns((*relation).rd_att)
    }
}

/// # Safety
/// The descriptor is a relation's.
unsafe fn has_known_columns(descriptor: TupleDesc) -> bool {
    // SAFETY: passed on to the caller.
    let descriptor = unsafe { PgTupleDesc::from_pg_unchecked(descriptor) };
    descriptor.len() == COLUMNS.len()
        && descriptor.iter().zip(COLUMNS).all(|(column, (name, kind))| {
            column.name() == name && column.atttypid == kind && column.attgenerated == 0 && !column.attisdropped
        })
}
