//! Writes a statement's jobs behind its last row, as part of the statement's plan: then timing, buffers and WAL belong to the statement,
//! for EXPLAIN ANALYZE, pg_stat_statements and auto_explain alike. `EndForeignModify` comes with ExecutorEnd, which none of them counts.
//!
//! The server has no callback for that moment. What runs a plan node is a function pointer of the node, though, and this module puts its own
//! in front of it. It is
//!
//! - the ModifyTable node's for its own targets, which are known before it runs;
//! - the one below it for partitions, which are found while the ModifyTable runs: that call may be its only one.
#![allow(unsafe_code)]

use super::finish;
use super::statement::Statement;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, ModifyTableState, PlanState, ResultRelInfo, TupleTableSlot};
use std::rc::Rc;

/// A plan node whose last row is waited for.
pub struct Watched {
    node: *const PlanState,
    /// What ran it before.
    run: pg_sys::ExecProcNodeMtd,
    /// The tables that have all their rows then.
    targets: Vec<*mut ResultRelInfo>,
}

/// Has a target of the ModifyTable node finish when the node has returned its last row.
///
/// # Safety
/// The node is being initialised, and the target has joined the statement.
pub unsafe fn finish_after(modify: *mut ModifyTableState, target: *mut ResultRelInfo) {
    // SAFETY: passed on to the caller.
    unsafe { watch(&raw mut (*modify).ps, target) }
}

/// The same for a partition that was found while the node runs. Nothing waits in the node for the end when what is below has returned its
/// last row: only batches would, and partitions have none.
///
/// # Safety
/// The node is running, and the target has joined the statement.
pub unsafe fn finish_partition_after(modify: *mut ModifyTableState, target: *mut ResultRelInfo) {
    // SAFETY: a ModifyTable node has one below it.
    unsafe { watch((*modify).ps.lefttree, target) }
}

/// # Safety
/// As for the two above.
unsafe fn watch(node: *mut PlanState, target: *mut ResultRelInfo) {
    // SAFETY: the caller vouches for the node. A node that is being initialised has what runs it in `ExecProcNode`, from where the server
    // takes it; one that runs already is called through that.
    unsafe {
        let Some(statement) = Statement::find((*node).state) else { return };
        let mut watched = statement.watched.borrow_mut();
        if let Some(known) = watched.iter_mut().find(|known| known.node == node) {
            known.targets.push(target);
            return;
        }
        watched.push(Watched { node, run: (*node).ExecProcNode, targets: vec![target] });
        (*node).ExecProcNode = Some(run);
    }
}

/// Runs a node that is watched.
#[pg_guard]
unsafe extern "C-unwind" fn run(node: *mut PlanState) -> *mut TupleTableSlot {
    // SAFETY: the node is running, and its statement keeps what is known of it until its memory goes.
    unsafe {
        let statement = Statement::find((*node).state).expect("the statement of a watched node is open");
        let run = statement.watched.borrow().iter().find(|known| known.node == node.cast_const()).and_then(|known| known.run);
        let run = run.expect("a watched node has what runs it");
        let slot = pg_sys::ffi::pg_guard_ffi_boundary(|| run(node));
        if slot.is_null() || (*slot).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 != 0 {
            finish_all(&statement, node);
        }
        slot
    }
}

/// # Safety
/// The node is running.
unsafe fn finish_all(statement: &Rc<Statement>, node: *const PlanState) {
    // Taken out first: finishing may end in any way.
    let targets =
        statement.watched.borrow_mut().iter_mut().find(|known| known.node == node).map(|known| known.targets.split_off(0));
    for target in targets.unwrap_or_default() {
        // SAFETY: targets live as long as the statement.
        unsafe { finish(target) }
    }
}
