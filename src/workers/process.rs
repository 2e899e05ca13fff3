//! What the extension's background processes have in common: signals, connection, transactions, sleep.
#![allow(unsafe_code)]

use crate::subtransaction::{caught, sqlstate};
use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::pg_sys::{self, FormData_pg_database, Oid};
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_guard};
use std::ffi::CStr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Somebody wants this process to end.
static STOP: AtomicBool = AtomicBool::new(false);

/// This process is in a transaction, or connecting.
static BUSY: AtomicBool = AtomicBool::new(true);

/// Settings that a role, a database or the server may have changed for its users, and that a worker's work does not depend on.
const SETTINGS: [(&CStr, &CStr); 9] = [
    (c"role", c"none"),
    (c"standard_conforming_strings", c"on"),
    (c"search_path", c"pg_catalog, pg_temp"),
    (c"default_transaction_isolation", c"read committed"),
    (c"default_transaction_read_only", c"off"),
    (c"statement_timeout", c"0"),
    (c"lock_timeout", c"0"),
    (c"row_security", c"on"),
    // A commit of maintenance that is lost in a crash is done again; it need not wait for the disk, nor for a standby.
    (c"synchronous_commit", c"off"),
];

/// Takes signals: SIGHUP reloads settings, SIGTERM ends this process: in the middle of a transaction as it ends any backend, else without a word
/// in the log.
pub fn begin() {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // SAFETY: the handler has the wanted signature, and does only what handlers may.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(stop));
        #[cfg(feature = "pg18")]
        pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(stop));
    }
}

/// Connects to a database, or to none, as the server's first superuser, who always exists.
pub fn connect(database: Option<Oid>) {
    // SAFETY: called once, before anything else needs the connection.
    unsafe {
        match database {
            Some(database) => pg_sys::BackgroundWorkerInitializeConnectionByOid(database, Oid::INVALID, 0),
            None => pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0),
        }
        for (name, value) in SETTINGS {
            pg_sys::SetConfigOption(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_OVERRIDE,
            );
        }
    }
    BUSY.store(false, Ordering::SeqCst);
}

/// Goes on as another role. Outside a transaction.
pub fn become_role(role: Oid, is_superuser: bool) {
    // SAFETY: the role exists.
    unsafe { pg_sys::SetSessionAuthorization(role, is_superuser) }
}

unsafe extern "C-unwind" fn stop(_signal: i32) {
    STOP.store(true, Ordering::SeqCst);
    // SAFETY: flags that handlers set, and the latch of this process.
    unsafe {
        // A mere cancellation could be caught by the code of a trigger.
        if BUSY.load(Ordering::SeqCst) {
            (&raw mut pg_sys::ProcDiePending).write_volatile(1);
            (&raw mut pg_sys::InterruptPending).write_volatile(1);
        }
        pg_sys::SetLatch(pg_sys::MyLatch);
    }
}

/// Whether this process is to end.
pub fn is_stopping() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Sleeps until something happens, or for so long at most. Whether this process is to go on.
pub fn sleep(longest: Duration) -> bool {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: the latch is this process's own.
    unsafe {
        // Outside a transaction, as the server wants it.
        pg_sys::pgstat_report_stat(true);
        if !is_stopping() {
            pg_sys::WaitLatch(pg_sys::MyLatch, events as i32, longest.as_millis() as _, pg_sys::PG_WAIT_EXTENSION);
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        if BackgroundWorker::sighup_received() {
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
    answer_interrupts();
    !is_stopping()
}

/// Signal barriers, above all. A cancellation that came when there was nothing to cancel is not meant for what comes next.
pub fn answer_interrupts() {
    if is_stopping() {
        return;
    }
    // SAFETY: a flag of this process.
    unsafe { (&raw mut pg_sys::QueryCancelPending).write_volatile(0) };
    let answer = AssertUnwindSafe(|| {
        pgrx::check_for_interrupts!();
    });
    PgTryBuilder::new(answer).catch_others(|_| ()).execute();
}

/// Runs `work` in a transaction, and commits it. An error ends the transaction, not the process: SQLSTATE and message.
pub fn transaction<T>(work: impl FnOnce() -> T) -> Result<T, (String, String)> {
    BUSY.store(true, Ordering::SeqCst);
    let outcome = match is_stopping() {
        true => Err((sqlstate(PgSqlErrorCode::ERRCODE_ADMIN_SHUTDOWN), "the process is to end".into())),
        false => run_transaction(work),
    };
    BUSY.store(false, Ordering::SeqCst);
    outcome
}

fn run_transaction<T>(work: impl FnOnce() -> T) -> Result<T, (String, String)> {
    let work = AssertUnwindSafe(|| {
        // SAFETY: begun and committed in pairs; what an error leaves open is ended below.
        unsafe {
            pg_sys::SetCurrentStatementStartTimestamp();
            pg_sys::StartTransactionCommand();
            pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            let done = work();
            pg_sys::PopActiveSnapshot();
            pg_sys::CommitTransactionCommand();
            Ok(done)
        }
    });
    let outcome = PgTryBuilder::new(work)
        .catch_others(|error| {
            let report = caught(&error);
            Err((sqlstate(report.sql_error_code()), report.message().to_owned()))
        })
        .execute();
    if outcome.is_err() {
        // SAFETY: the error is off the server's stack.
        unsafe { pg_sys::AbortCurrentTransaction() };
    }
    outcome
}

/// Shows what this process does in pg_stat_activity.
pub fn show(activity: Option<&CStr>) {
    let (state, text) = match activity {
        Some(text) => (pg_sys::BackendState::STATE_RUNNING, text.as_ptr()),
        None => (pg_sys::BackendState::STATE_IDLE, std::ptr::null()),
    };
    // SAFETY: a C string that outlives the call, or none.
    unsafe { pg_sys::pgstat_report_activity(state, text) }
}

/// Ends this process. One that ends with 0 is not started again by the server.
#[allow(unreachable_code)]
pub fn exit(code: i32) -> ! {
    // SAFETY: runs what the process registered for its end.
    unsafe { pg_sys::proc_exit(code) };
    // Not every version's header says that it does not return.
    unreachable!("proc_exit does not return")
}

/// Sends a signal to a process of this server.
pub fn signal(process: i32, signal: i32) {
    // SAFETY: a process that is gone makes an error, which does not matter.
    unsafe { libc::kill(process, signal) };
}

/// Has the server take the end of this process, once somebody wants it, for one that is final. In the middle of a transaction it ends as every
/// backend does, with 1, and would be started again.
pub fn end_for_good() {
    // SAFETY: the callback stays loaded as long as the process.
    unsafe { pg_sys::on_proc_exit(Some(end_with_0), pg_sys::Datum::from(0)) }
}

/// The last thing that happens: this was registered first, and the process has given back what it shared before.
#[pg_guard]
unsafe extern "C-unwind" fn end_with_0(_code: i32, _argument: pg_sys::Datum) {
    if is_stopping() {
        // SAFETY: ends this process.
        unsafe { libc::_exit(0) };
    }
}

/// Has `work` run when this process ends, in whatever way but a crash.
pub fn at_exit(work: pg_sys::pg_on_exit_callback) {
    // SAFETY: the callback stays loaded as long as the process.
    unsafe { pg_sys::before_shmem_exit(work, pg_sys::Datum::from(0)) }
}

/// Whether the server is a standby.
pub fn is_standby() -> bool {
    // SAFETY: only reads the server's state.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The name of a database, by its row.
pub fn name_of(row: &FormData_pg_database) -> String {
    // SAFETY: names are C strings.
    unsafe { CStr::from_ptr(row.datname.data.as_ptr()) }.to_string_lossy().into_owned()
}

/// Whether workers belong into a database: not into templates, which nobody can copy while they are connected, nor where no
/// connections are allowed. A limit of -2 marks one whose DROP was interrupted.
pub fn takes_workers(row: &FormData_pg_database) -> bool {
    row.datallowconn && !row.datistemplate && row.datconnlimit != -2
}

/// A database as its row says: its name, and whether workers belong into it. `None` if there is none. In a transaction.
pub fn look_up_database(database: Oid) -> Option<(String, bool)> {
    // SAFETY: a catalog row, read while it is held.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::DATABASEOID as i32, pg_sys::Datum::from(database));
        if tuple.is_null() {
            return None;
        }
        let row = &*pg_sys::GETSTRUCT(tuple).cast::<FormData_pg_database>();
        let found = (name_of(row), takes_workers(row));
        pg_sys::ReleaseSysCache(tuple);
        Some(found)
    }
}
