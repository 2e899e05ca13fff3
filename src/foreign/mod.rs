//! The foreign data wrapper: foreign tables that COPY FROM and INSERT write jobs to.
//!
//! A statement opens a [`Stream`], hands it row by row, and finishes it behind the last row. Rows are spooled as they come, and claims,
//! lanes and job rows are written then, so that a client may take its time.
#![allow(unsafe_code)]

mod created;
mod explain;
mod last_row;
mod options;
mod returned;
mod rights;
mod statement;
mod stream;

pub use created::check_foreign_tables;
pub use options::validate;

use crate::entry::Call;
use crate::ingest::OnConflict;
use crate::report;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Datum, EState, List, ModifyTableState, NodeTag, ResultRelInfo, TupleTableSlot};
use pgrx::{PgMemoryContexts, PgRelation, pg_guard};
use std::ffi::c_int;
use stream::Stream;

/// `awa_ingest.fdw_handler`: the callbacks of the foreign data wrapper. All that writes is there; a scan is refused when it is planned.
pub fn handler(_call: &Call) -> Result<Option<Datum>> {
    // SAFETY: a zeroed node in the current memory context, as the server's own handlers make it; unset callbacks are absent.
    unsafe {
        let routine = pg_sys::palloc0(size_of::<pg_sys::FdwRoutine>()).cast::<pg_sys::FdwRoutine>();
        (*routine).type_ = NodeTag::T_FdwRoutine;
        (*routine).GetForeignRelSize = Some(refuse_scan);
        (*routine).IsForeignScanParallelSafe = Some(refuse_parallel_scan);
        (*routine).IsForeignRelUpdatable = Some(is_updatable);
        (*routine).BeginForeignModify = Some(begin_modify);
        (*routine).BeginForeignInsert = Some(begin_insert);
        (*routine).ExecForeignInsert = Some(insert);
        (*routine).ExecForeignBatchInsert = Some(insert_batch);
        (*routine).GetForeignModifyBatchSize = Some(batch_size);
        (*routine).EndForeignModify = Some(end);
        (*routine).EndForeignInsert = Some(end);
        (*routine).ExplainForeignModify = Some(explain::modify);
        Ok(Some(Datum::from(routine)))
    }
}

/// SELECT, UPDATE and DELETE plan a scan first.
#[pg_guard]
unsafe extern "C-unwind" fn refuse_scan(_root: *mut pg_sys::PlannerInfo, _base: *mut pg_sys::RelOptInfo, table: pg_sys::Oid) {
    // SAFETY: the planner holds a lock on the table.
    let table = unsafe { PgRelation::open(table) };
    report::raise(Error::WriteOnlyTable(table.name().to_owned()))
}

/// Asked about a scan even where a condition is never true, and nothing is planned.
#[pg_guard]
unsafe extern "C-unwind" fn refuse_parallel_scan(
    _root: *mut pg_sys::PlannerInfo,
    _base: *mut pg_sys::RelOptInfo,
    entry: *mut pg_sys::RangeTblEntry,
) -> bool {
    // SAFETY: the planner holds a lock on the table.
    let table = unsafe { PgRelation::open((*entry).relid) };
    report::raise(Error::WriteOnlyTable(table.name().to_owned()))
}

#[pg_guard]
unsafe extern "C-unwind" fn is_updatable(_table: pg_sys::Relation) -> c_int {
    1 << pg_sys::CmdType::CMD_INSERT
}

/// Before the first row of an INSERT.
#[pg_guard]
unsafe extern "C-unwind" fn begin_modify(
    modify: *mut ModifyTableState,
    target: *mut ResultRelInfo,
    _private: *mut List,
    _subplan: c_int,
    flags: c_int,
) {
    if flags & pg_sys::EXEC_FLAG_EXPLAIN_ONLY as c_int == 0 {
        // SAFETY: passed on from the server, which initialises the node.
        unsafe {
            begin(modify, target);
            last_row::finish_after(modify, target);
        }
    }
}

/// Before the first row of a COPY, or of an INSERT into a partitioned table.
#[pg_guard]
unsafe extern "C-unwind" fn begin_insert(modify: *mut ModifyTableState, target: *mut ResultRelInfo) {
    // SAFETY: passed on from the server. COPY has a node without plan.
    unsafe {
        begin(modify, target);
        if !(*modify).ps.plan.is_null() {
            stream(target).into_iter().for_each(|stream| stream.is_partition = true);
            last_row::finish_partition_after(modify, target);
        }
    }
}

/// # Safety
/// Both are of a running statement.
unsafe fn begin(modify: *mut ModifyTableState, target: *mut ResultRelInfo) {
    // SAFETY: the state is kept by the statement's memory context, which drops it when the statement ends in whatever way. COPY has no
    // plan; an INSERT's is a ModifyTable.
    unsafe {
        let plan = (*modify).ps.plan.cast::<pg_sys::ModifyTable>();
        let ignores = !plan.is_null() && (*plan).onConflictAction == pg_sys::OnConflictAction::ONCONFLICT_NOTHING;
        let wish = match (*modify).operation {
            // A row that moves here from another partition is deleted there: it must not be left out.
            pg_sys::CmdType::CMD_UPDATE | pg_sys::CmdType::CMD_MERGE => Some(OnConflict::Error),
            _ => ignores.then_some(OnConflict::Skip),
        };
        let statement = (*modify).ps.state;
        let owner = if plan.is_null() { None } else { rights::view_owner(target, statement) };
        let mut memory = PgMemoryContexts::For((*statement).es_query_cxt);
        let stream = memory.switch_to(|_| Stream::open((*target).ri_RelationDesc, statement, wish, owner));
        let stream = stream.unwrap_or_else(|error| report::raise(error));
        (*target).ri_FdwState = memory.leak_and_drop_on_delete(stream).cast();
    }
}

/// The stream of a target; there is none for a plan that is only explained.
///
/// # Safety
/// As for [`begin`].
unsafe fn stream<'a>(target: *mut ResultRelInfo) -> Option<&'a mut Stream> {
    // SAFETY: what `begin` put there, and nothing else refers to it while a callback runs.
    unsafe { (*target).ri_FdwState.cast::<Stream>().as_mut() }
}

#[pg_guard]
unsafe extern "C-unwind" fn insert(
    statement: *mut EState,
    target: *mut ResultRelInfo,
    slot: *mut TupleTableSlot,
    _plan_slot: *mut TupleTableSlot,
) -> *mut TupleTableSlot {
    // SAFETY: passed on from the server.
    if unsafe { take(statement, target, slot) } { slot } else { std::ptr::null_mut() }
}

/// Rows of a batch are wanted by nobody afterwards (see [`batch_size`]), so that none is left out.
#[pg_guard]
unsafe extern "C-unwind" fn insert_batch(
    statement: *mut EState,
    target: *mut ResultRelInfo,
    slots: *mut *mut TupleTableSlot,
    _plan_slots: *mut *mut TupleTableSlot,
    count: *mut c_int,
) -> *mut *mut TupleTableSlot {
    // SAFETY: passed on from the server; there are `count` slots.
    unsafe {
        for index in 0..*count as usize {
            take(statement, target, *slots.add(index));
        }
    }
    slots
}

/// Takes a row in. False if it is skipped.
///
/// # Safety
/// As for [`begin`], and the slot holds a row of the target.
unsafe fn take(statement: *mut EState, target: *mut ResultRelInfo, slot: *mut TupleTableSlot) -> bool {
    // SAFETY: what is allocated for a row goes into the memory that the server empties from row to row.
    unsafe {
        let Some(stream) = stream(target) else { return false };
        let mut memory = PgMemoryContexts::For(row_memory(statement));
        let taken = memory.switch_to(|_| stream.take(slot, is_outcome_wanted(target)));
        taken.unwrap_or_else(|error| report::raise(error))
    }
}

/// Whether somebody looks at the row once it is inserted: RETURNING, a trigger, or a view's check option.
///
/// # Safety
/// As for [`begin`].
unsafe fn is_outcome_wanted(target: *mut ResultRelInfo) -> bool {
    // SAFETY: set up before the first row.
    unsafe {
        let triggers = (*target).ri_TrigDesc.as_ref();
        !(*target).ri_projectReturning.is_null()
            || !(*target).ri_WithCheckOptions.is_null()
            || triggers.is_some_and(|triggers| triggers.trig_insert_after_row)
    }
}

/// # Safety
/// As for [`begin`].
unsafe fn row_memory(statement: *mut EState) -> pg_sys::MemoryContext {
    // SAFETY: made on first use, as the server does.
    unsafe {
        let context = (*statement).es_per_tuple_exprcontext;
        let context = if context.is_null() { pg_sys::MakePerTupleExprContext(statement) } else { context };
        (*context).ecxt_per_tuple_memory
    }
}

/// Asked after the beginning. Rows come one by one unless the table's option says otherwise, where each is looked at, and where batches would
/// wait in a partition behind the last row.
#[pg_guard]
unsafe extern "C-unwind" fn batch_size(target: *mut ResultRelInfo) -> c_int {
    // SAFETY: passed on from the server.
    unsafe {
        let triggers = (*target).ri_TrigDesc.as_ref().is_some_and(|triggers| triggers.trig_insert_before_row);
        match stream(target) {
            Some(stream) if !(is_outcome_wanted(target) || triggers || stream.is_partition) => stream.batch_size(),
            _ => 1,
        }
    }
}

/// Behind the last row.
///
/// # Safety
/// As for [`begin`].
unsafe fn finish(target: *mut ResultRelInfo) {
    // SAFETY: passed on to the caller.
    let finished = unsafe { stream(target) }.map_or(Ok(()), Stream::finish);
    finished.unwrap_or_else(|error| report::raise(error));
}

/// At the end of a COPY, and of an INSERT, which is ExecutorEnd. A statement that was not run to its last row is written here.
#[pg_guard]
unsafe extern "C-unwind" fn end(_statement: *mut EState, target: *mut ResultRelInfo) {
    // SAFETY: passed on from the server.
    let ended = unsafe { stream(target) }.map_or(Ok(()), Stream::end);
    ended.unwrap_or_else(|error| report::raise(error));
}
