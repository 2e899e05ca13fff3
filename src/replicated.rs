//! Rows that logical replication brings into this extension's own tables.
//!
//! A row that collides with one that is there would end the subscription with 23505, and with it the replication of the user's tables.
#![allow(unsafe_code)]

use crate::entry::Call;
use crate::server;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Datum, NodeTag, Oid, TriggerData};
use std::cell::Cell;
use std::ffi::CStr;

thread_local! {
    /// This process has logged that it left out a row.
    static LOGGED: Cell<bool> = const { Cell::new(false) };
}

/// `awa_ingest.keep_own_rows`: a BEFORE ROW trigger that fires for replicas. Leaves out a row that replication inserts where one with the same
/// replica identity is there; with the argument `all`, it leaves out every change that replication brings.
///
/// Sessions that only set `session_replication_role`, such as a restore, replay no other server's changes and are left alone. Raises 22023
/// outside a trigger.
pub fn keep_own_rows(call: &Call) -> Result<Option<Datum>> {
    let misuse = || Error::InvalidArgument("keep_own_rows is called by a row trigger only".into());
    // SAFETY: the context is the trigger's, if the server calls this for one.
    let trigger = unsafe {
        let context = (*call.raw()).context;
        if context.is_null() || (*context).type_ != NodeTag::T_TriggerData {
            return Err(misuse());
        }
        &*context.cast::<TriggerData>()
    };
    if trigger.tg_event & pg_sys::TRIGGER_EVENT_ROW == 0
        || trigger.tg_event & pg_sys::TRIGGER_EVENT_TIMINGMASK != pg_sys::TRIGGER_EVENT_BEFORE
    {
        return Err(misuse());
    }
    let operation = trigger.tg_event & pg_sys::TRIGGER_EVENT_OPMASK;
    let row = if operation == pg_sys::TRIGGER_EVENT_UPDATE { trigger.tg_newtuple } else { trigger.tg_trigtuple };
    // SAFETY: the trigger's data outlive the call, and its relation is open.
    let is_left_out =
        is_replaying() && unsafe { has_argument(trigger, c"all") || operation == pg_sys::TRIGGER_EVENT_INSERT && exists(trigger) };
    Ok(Some(if is_left_out { Datum::from(0) } else { Datum::from(row) }))
}

/// Whether this session applies the changes of another server.
fn is_replaying() -> bool {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::replorigin_session_origin != pg_sys::InvalidRepOriginId as pg_sys::RepOriginId }
}

/// # Safety
/// A running trigger's data.
unsafe fn has_argument(data: &TriggerData, wanted: &CStr) -> bool {
    // SAFETY: the caller vouches for the data; arguments are C strings.
    unsafe {
        let trigger = &*data.tg_trigger;
        (0..trigger.tgnargs as usize).any(|index| CStr::from_ptr(*trigger.tgargs.add(index)) == wanted)
    }
}

/// Whether the table has a row with the replica identity of the new one. Waits for a transaction that is about to insert one.
///
/// # Safety
/// Data of a running BEFORE INSERT row trigger.
unsafe fn exists(data: &TriggerData) -> bool {
    // SAFETY: the relation is open and locked by the insertion; the slot holds the new row. The found row's slot is dropped below, or with
    // the memory of the statement after an error.
    unsafe {
        let relation = data.tg_relation;
        let index = pg_sys::RelationGetReplicaIndex(relation);
        if index == Oid::INVALID {
            return false;
        }
        let new = data.tg_trigslot;
        let columns = (*(*relation).rd_att).natts;
        if i32::from((*new).tts_nvalid) < columns {
            pg_sys::slot_getsomeattrs_int(new, columns);
        }
        let found = pg_sys::table_slot_create(relation, std::ptr::null_mut());
        let exists = pg_sys::RelationFindReplTupleByIndex(relation, index, pg_sys::LockTupleMode::LockTupleKeyShare, new, found);
        pg_sys::ExecDropSingleTupleTableSlot(found);
        if exists && !LOGGED.replace(true) {
            let table = server::relation_name((*relation).rd_id);
            pgrx::log!(
                "awa_ingest: replication brought a row of {table} that is there already; it is left out, and so are others like it"
            );
        }
        exists
    }
}
