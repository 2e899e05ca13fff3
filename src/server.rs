//! What the pipeline asks of the server job by job.
#![allow(unsafe_code)]

use crate::spi::Argument;
use pgrx::IntoDatum;
use pgrx::pg_sys::{self, AclMode, Oid};
use std::ffi::CStr;

/// Where job ids come from. Ids are drawn ahead, more with every draw up to `most`, so that the ids of a call that takes long stay in
/// few runs beside others that draw, too. What is left over is a gap.
pub struct Ids {
    sequence: Oid,
    most: usize,
    draw: usize,
    /// Drawn ids, the next one last.
    drawn: Vec<i64>,
}

impl Ids {
    /// Ids of `sequence`, drawn one by one.
    pub fn single(sequence: Oid) -> Self {
        Self { sequence, most: 1, draw: 1, drawn: Vec::new() }
    }

    /// The same ids, drawn up to 64 ahead: few enough to waste, and enough to make a run.
    pub fn ahead(self) -> Self {
        Self { most: 64, ..self }
    }

    /// The next id; checks the caller's privilege.
    pub fn next(&mut self) -> i64 {
        if let Some(id) = self.drawn.pop() {
            return id;
        }
        let id = nextval(self.sequence);
        self.drawn.extend((1..self.draw).map(|_| nextval(self.sequence)));
        self.drawn.reverse();
        self.draw = (self.draw * 2).min(self.most);
        id
    }
}

/// The next value; checks the caller's privilege.
pub fn nextval(sequence: Oid) -> i64 {
    // SAFETY: nextval raises for anything that is no sequence.
    unsafe { pg_sys::nextval_internal(sequence, true) }
}

/// This process.
pub fn process_id() -> u32 {
    // SAFETY: set once at the start of the process.
    unsafe { pg_sys::MyProcPid as u32 }
}

/// The database that this session is connected to.
pub fn database() -> Oid {
    // SAFETY: set once at the start of the session.
    unsafe { pg_sys::MyDatabaseId }
}

/// Whether the server is starting, and loads what `shared_preload_libraries` names.
pub fn is_preloading() -> bool {
    // SAFETY: a variable of the process.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}

/// The time now, not that of the transaction, as `timestamptz`.
pub fn clock() -> i64 {
    // SAFETY: takes no arguments and only reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}

/// The transaction's time, `now()` in SQL, as `timestamptz`.
pub fn transaction_clock() -> i64 {
    // SAFETY: called inside a transaction.
    unsafe { pg_sys::GetCurrentTransactionStartTimestamp() }
}

/// The transaction, or subtransaction, that writes now; none before it has written.
pub fn transaction() -> Argument {
    // SAFETY: called inside a transaction.
    unsafe { pg_sys::GetCurrentTransactionIdIfAny() }.into_datum()
}

/// The session's user, and the one that SET ROLE made of it. Functions with the rights of their owner change neither.
pub fn session_users() -> (Oid, Oid) {
    // SAFETY: variables of the process.
    unsafe { (pg_sys::GetSessionUserId(), pg_sys::GetOuterUserId()) }
}

/// Whether the current user is a superuser.
pub fn is_superuser() -> bool {
    // SAFETY: only looks the user up.
    unsafe { pg_sys::superuser() }
}

/// Whether the current user has a right on a table, one of the server's `ACL_` bits.
pub fn may(table: Oid, right: u32) -> bool {
    // SAFETY: a variable of the process.
    user_may(unsafe { pg_sys::GetUserId() }, table, right)
}

/// Whether the current user may read a table.
pub fn may_select(table: Oid) -> bool {
    may(table, pg_sys::ACL_SELECT)
}

/// The user's lock_timeout in milliseconds; 0 is none.
pub fn lock_timeout() -> i32 {
    // SAFETY: a setting of the server, only read.
    unsafe { pg_sys::LockTimeout }
}

/// The same of the session's user, whoever acts now.
pub fn session_user_may(table: Oid, right: u32) -> bool {
    // SAFETY: a variable of the process.
    user_may(unsafe { pg_sys::GetSessionUserId() }, table, right)
}

fn user_may(user: Oid, table: Oid, right: u32) -> bool {
    // SAFETY: the check takes any relation of the catalog, and raises if it went away.
    unsafe { pg_sys::pg_class_aclcheck(table, user, right as AclMode) == pg_sys::AclResult::ACLCHECK_OK }
}

/// Whether the transaction keeps one snapshot for all its statements.
pub fn keeps_snapshot() -> bool {
    // SAFETY: a variable of the process.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// The name of a relation, for a message.
pub fn relation_name(relation: Oid) -> String {
    // SAFETY: any oid may be asked for; the name is a C string.
    unsafe {
        let name = pg_sys::get_rel_name(relation);
        if name.is_null() { relation.to_u32().to_string() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
    }
}

/// Runs `work` with another value of a setting.
pub fn with_setting<T>(name: &CStr, value: &CStr, work: impl FnOnce() -> T) -> T {
    let level = set_for_now(name, value);
    let done = work();
    // SAFETY: the level was just opened; after an error the subtransaction's end closes it.
    unsafe { pg_sys::AtEOXact_GUC(true, level) };
    done
}

/// Runs `work` without its warnings: neither to the client nor to the log. For those who may set what is logged.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let level = set_for_now(c"client_min_messages", c"error");
    set_in_level(c"log_min_messages", c"error", pg_sys::GucContext::PGC_SUSET);
    let done = work();
    // SAFETY: the level was just opened; after an error the subtransaction's end closes it.
    unsafe { pg_sys::AtEOXact_GUC(true, level) };
    done
}

/// Gives a setting another value until `AtEOXact_GUC` closes the level returned, or until the (sub)transaction ends.
pub fn set_for_now(name: &CStr, value: &CStr) -> i32 {
    let level = open_level();
    set_in_level(name, value, pg_sys::GucContext::PGC_USERSET);
    level
}

/// Begins a level of settings, until `AtEOXact_GUC` closes it, or until the (sub)transaction ends.
pub fn open_level() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { pg_sys::NewGUCNestLevel() }
}

/// Gives a setting another value as SET does: for the session, or until the (sub)transaction is rolled back.
pub fn set_for_session(name: &CStr, value: &CStr) {
    set(name, value, pg_sys::GucContext::PGC_USERSET, pg_sys::GucAction::GUC_ACTION_SET);
}

/// Gives a setting another value in the level that was opened last, with the rights of `context`.
pub fn set_in_level(name: &CStr, value: &CStr, context: pg_sys::GucContext::Type) {
    set(name, value, context, pg_sys::GucAction::GUC_ACTION_SAVE);
}

fn set(name: &CStr, value: &CStr, context: pg_sys::GucContext::Type, action: pg_sys::GucAction::Type) {
    // SAFETY: two C strings that outlive the call, which copies them.
    unsafe {
        pg_sys::set_config_option(name.as_ptr(), value.as_ptr(), context, pg_sys::GucSource::PGC_S_SESSION, action, true, 0, false);
    }
}
