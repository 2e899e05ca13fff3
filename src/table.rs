//! Tables that are written past the executor, as COPY writes them. Only where a plain INSERT would do nothing else: no triggers, rules,
//! row security or generated columns, and the columns that the caller knows.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum, EState, Oid, Relation, ResultRelInfo, TupleDesc, TupleTableSlot};
use pgrx::{PgMemoryContexts, PgTupleDesc};

/// A column that is known: its name, and its type.
pub type Column = (&'static str, Oid);

/// An open table, and what writing to it takes.
pub struct Table {
    relation: Relation,
    state: *mut EState,
    target: *mut ResultRelInfo,
    /// What writing a batch allocates.
    scratch: PgMemoryContexts,
    /// Each keeps its tuple until it gets the next.
    slots: Vec<*mut TupleTableSlot>,
    filled: usize,
    /// Whether a row of it was seen to belong into this partition.
    fits: bool,
}

impl Table {
    /// Opens the table, on which the caller holds the lock of a writer and has the right to insert. `fits` says that rows like those to come
    /// were seen to belong into this partition. `None` where rows must go through the executor.
    pub fn open(table: Oid, columns: &[Column], fits: bool) -> Option<Self> {
        // SAFETY: the relation is locked; everything is allocated in the current memory context, which an error leaves to its owner.
        unsafe {
            let relation = pg_sys::relation_open(table, pg_sys::NoLock as i32);
            if !is_plain(relation, columns) {
                pg_sys::relation_close(relation, pg_sys::NoLock as i32);
                return None;
            }
            let state = pg_sys::CreateExecutorState();
            let target = PgMemoryContexts::For((*state).es_query_cxt)
                .switch_to(|_| pg_sys::palloc0(size_of::<ResultRelInfo>()).cast::<ResultRelInfo>());
            (*target).type_ = pg_sys::NodeTag::T_ResultRelInfo;
            pg_sys::InitResultRelInfo(target, relation, 0, std::ptr::null_mut(), 0);
            pg_sys::ExecOpenIndices(target, false);
            let scratch = PgMemoryContexts::For((*pg_sys::MakePerTupleExprContext(state)).ecxt_per_tuple_memory);
            Some(Self { relation, state, target, scratch, slots: Vec::new(), filled: 0, fits })
        }
    }

    /// Adds a row of the table's columns to the batch; `None` is NULL. Returns the bytes of its tuple.
    pub fn add<const N: usize>(&mut self, row: [Option<Datum>; N]) -> usize {
        let mut values = row.map(|value| value.unwrap_or(Datum::from(0)));
        let mut nulls = row.map(|value| value.is_none());
        // SAFETY: `is_plain` has seen that the relation has the caller's columns. The tuple is a copy that its slot owns.
        let bytes = unsafe {
            let descriptor = (*self.relation).rd_att;
            if self.filled == self.slots.len() {
                self.slots.push(pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsHeapTuple));
            }
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::ExecStoreHeapTuple(tuple, self.slots[self.filled], true);
            (*tuple).t_len as usize
        };
        self.filled += 1;
        bytes
    }

    /// Rows in the batch.
    pub fn batch(&self) -> usize {
        self.filled
    }

    /// Writes the batch, and begins another.
    pub fn write(&mut self) {
        let batch = &mut self.slots[..self.filled];
        if batch.is_empty() {
            return;
        }
        // SAFETY: the slots hold tuples of the relation, which is open with its indexes. All rows are of one partition, so that the first
        // stands for them all there.
        unsafe {
            let (relation, state, target) = (self.relation, self.state, self.target);
            self.scratch.switch_to(|_| {
                if !self.fits && (*(*relation).rd_rel).relispartition {
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
        self.fits = true;
        self.filled = 0;
        pgrx::check_for_interrupts!();
    }

    /// Closes the table; what is left of the batch is not written.
    pub fn close(self) {
        // SAFETY: all of it was made by `open` and `add`; the lock on the relation stays.
        unsafe {
            self.slots.iter().for_each(|slot| pg_sys::ExecDropSingleTupleTableSlot(*slot));
            pg_sys::ExecCloseIndices(self.target);
            pg_sys::FreeExecutorState(self.state);
            pg_sys::relation_close(self.relation, pg_sys::NoLock as i32);
        }
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
unsafe fn is_plain(relation: Relation, columns: &[Column]) -> bool {
    // SAFETY: the caller vouches for the relation.
    unsafe {
        let class = &*(*relation).rd_rel;
        class.relkind as u8 == pg_sys::RELKIND_RELATION
            && class.relam == pg_sys::HEAP_TABLE_AM_OID
            && !(fires_triggers(relation) || class.relhasrules || class.relrowsecurity)
            && has_columns((*relation).rd_att, columns)
    }
}

/// Whether the relation has triggers that could fire in this session: not those for replicas only, except in a session that is one.
///
/// # Safety
/// The relation is open.
unsafe fn fires_triggers(relation: Relation) -> bool {
    // SAFETY: the caller vouches for the relation; its cache entry lists its triggers.
    unsafe {
        let triggers = (*relation).trigdesc;
        if triggers.is_null() {
            return false;
        }
        let is_origin = pg_sys::SessionReplicationRole != pg_sys::SESSION_REPLICATION_ROLE_REPLICA as i32;
        let silent = |trigger: &pg_sys::Trigger| is_origin && trigger.tgenabled as u8 == pg_sys::TRIGGER_FIRES_ON_REPLICA;
        !(0..(*triggers).numtriggers as usize).all(|index| silent(&*(*triggers).triggers.add(index)))
    }
}

/// # Safety
/// The descriptor is a relation's.
unsafe fn has_columns(descriptor: TupleDesc, columns: &[Column]) -> bool {
    // SAFETY: passed on to the caller.
    let descriptor = unsafe { PgTupleDesc::from_pg_unchecked(descriptor) };
    descriptor.len() == columns.len()
        && descriptor.iter().zip(columns).all(|(column, (name, kind))| {
            column.name() == *name && column.atttypid == *kind && column.attgenerated == 0 && !column.attisdropped
        })
}
