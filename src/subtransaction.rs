//! Work that is tried again where it meets others crosswise: in a subtransaction that gives back its locks, with a lock timeout of its own.
//!
//! awa's producers take a key, its lane, the next key. Who takes all keys first can wait for such a producer in a circle, and the server
//! would end one of the two.
#![allow(unsafe_code)]

use crate::changes::Moment;
use crate::server;
use pgrx::PgTryBuilder;
use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel};
use pgrx::{PgSqlErrorCode, pg_sys};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// Attempts that give up by themselves. The first waits less than half of deadlock_timeout for a lock, so that the other one's wait is over before the
/// server looks for a deadlock there. On a lane that is never free for so short a wait that is not enough: patience doubles up to
/// [`PATIENCE`] times, and where the server ends such an attempt, there are many.
const ATTEMPTS: u32 = 30;

/// How often the first wait is doubled.
const PATIENCE: u32 = 4;

/// The same for a transaction that holds more than this call took: giving that back may not be enough, and the server is to find out.
const ATTEMPTS_OF_MANY: u32 = 4;

/// Longest pause between two attempts, in milliseconds.
const LONGEST_PAUSE: u64 = 100;

thread_local! {
    /// When a call last succeeded.
    static LAST: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// Runs `work` until it succeeds. After that many deadlocks or timeouts, or when the user's lock_timeout is over, it runs once more and fails
/// as it fails.
pub fn insist<T>(mut work: impl FnMut() -> T) -> T {
    let begun = Instant::now();
    let is_first = LAST.get().is_none_or(|last| last.is_before_end(Moment::now()));
    let attempts = if is_first { ATTEMPTS } else { ATTEMPTS_OF_MANY };
    for attempt in 0..attempts {
        let Some(limit) = Limit::of(attempt, begun) else { break };
        if let Some(done) = attempt_once(limit, &mut work) {
            LAST.set(Some(Moment::now()));
            return done;
        }
        pause(attempt);
    }
    work()
}

/// How long an attempt may wait for a lock.
#[derive(Clone, Copy)]
enum Limit {
    /// So many milliseconds.
    Own(i32),
    /// The user's lock_timeout, which is shorter.
    Users,
}

impl Limit {
    /// `None` where the user does not want to wait for another attempt.
    fn of(attempt: u32, begun: Instant) -> Option<Self> {
        // SAFETY: settings of the server, only read.
        let (deadlock, users) = unsafe { (pg_sys::DeadlockTimeout, pg_sys::LockTimeout) };
        // Never the same as deadlock_timeout: of two timeouts at once the server reports one, and the other later.
        let own = (deadlock / 20 * 9).max(1).saturating_mul(1 << attempt.min(PATIENCE));
        let is_over = users > 0 && begun.elapsed().as_millis() >= users as u128;
        match users {
            _ if is_over => None,
            users if (1..=own).contains(&users) => Some(Self::Users),
            _ => Some(Self::Own(own)),
        }
    }
}

/// `None` if it met a deadlock, or waited for too long. What it did is rolled back then, and also before any other error goes on: whoever
/// catches that must find the subtransaction that he began.
fn attempt_once<T>(limit: Limit, work: &mut impl FnMut() -> T) -> Option<T> {
    let outcome = match limit {
        Limit::Own(milliseconds) => attempt(|| within(milliseconds, &mut *work)),
        Limit::Users => attempt(&mut *work),
    };
    match outcome {
        Ok(done) => Some(done),
        Err(failure) if failure.is_worth_another(limit) => {
            check_statement_timeout();
            None
        }
        Err(failure) => failure.raise(),
    }
}

/// Runs `work` in a subtransaction. An error is caught, and what `work` did is rolled back.
pub fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    attempt_keeping(work, |_| true)
}

/// The same, but what `work` did is rolled back as well where its result says that it is not to be kept.
pub fn attempt_keeping<T>(work: impl FnOnce() -> T, keeps: impl FnOnce(&T) -> bool) -> Result<T, Failure> {
    // SAFETY: the subtransaction is ended on every way out, and memory context and resource owner are put back, as procedural languages do.
    unsafe {
        let (memory, owner) = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(memory);
        let work = AssertUnwindSafe(|| Ok(work()));
        let outcome = PgTryBuilder::new(work).catch_others(|error| Err(Failure::of(error, memory))).execute();
        match &outcome {
            Ok(done) if keeps(done) => pg_sys::ReleaseCurrentSubTransaction(),
            _ => pg_sys::RollbackAndReleaseCurrentSubTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(memory);
        pg_sys::CurrentResourceOwner = owner;
        outcome
    }
}

/// Runs `work` with another lock_timeout.
pub fn within<T>(milliseconds: i32, work: impl FnOnce() -> T) -> T {
    let value = CString::new(milliseconds.to_string()).unwrap_or_default();
    server::with_setting(c"lock_timeout", &value, work)
}

/// An error that was caught.
pub enum Failure {
    /// The server's, whole.
    Server(*mut pg_sys::ErrorData),
    /// One of Rust.
    Rust(Box<CaughtError>),
}

impl Failure {
    /// # Safety
    /// The error has just been caught, and the memory context outlives this.
    pub unsafe fn of(error: CaughtError, memory: pg_sys::MemoryContext) -> Self {
        if !matches!(error, CaughtError::PostgresError(_)) {
            return Self::Rust(Box::new(error));
        }
        // SAFETY: the server still has the error on its stack, with fields that pgrx's own copy lacks, such as the constraint.
        unsafe {
            pg_sys::MemoryContextSwitchTo(memory);
            Self::Server(pg_sys::CopyErrorData())
        }
    }

    /// Its SQLSTATE.
    pub fn code(&self) -> PgSqlErrorCode {
        match self {
            // SAFETY: the copy that `of` made.
            Self::Server(data) => PgSqlErrorCode::from(unsafe { (**data).sqlerrcode }),
            Self::Rust(error) => caught(error).sql_error_code(),
        }
    }

    /// Its message.
    pub fn message(&self) -> String {
        match self {
            // SAFETY: the copy that `of` made; the server's messages are C strings.
            Self::Server(data) => unsafe { string((**data).message).unwrap_or_default() },
            Self::Rust(error) => caught(error).message().to_owned(),
        }
    }

    /// Schema, table and name of the constraint that was violated, if it is about one.
    pub fn constraint(&self) -> Option<(String, String, String)> {
        let Self::Server(data) = self else { return None };
        // SAFETY: the copy that `of` made.
        unsafe { Some((string((**data).schema_name)?, string((**data).table_name)?, string((**data).constraint_name)?)) }
    }

    /// More about the cause; empty where nothing is said.
    pub fn detail(&self) -> String {
        let Self::Server(data) = self else { return String::new() };
        // SAFETY: the copy that `of` made.
        unsafe { string((**data).detail).unwrap_or_default() }
    }

    /// SQLSTATE and message.
    pub fn report(&self) -> (String, String) {
        (sqlstate(self.code()), self.message())
    }

    /// Whether others were in the way: a lock was not to be had in time, or the wait for it stood in a circle.
    pub fn is_contention(&self) -> bool {
        matches!(self.code(), PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE | PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED)
    }

    fn is_worth_another(&self, limit: Limit) -> bool {
        match self.code() {
            PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED => true,
            PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE => matches!(limit, Limit::Own(_)),
            _ => false,
        }
    }

    /// Raises it as it was.
    // Not every version's header says that the server's function does not return.
    #[allow(unreachable_code)]
    pub fn raise(self) -> ! {
        match self {
            Self::Rust(error) => error.rethrow(),
            Self::Server(data) => {
                // SAFETY: the copy that `of` made.
                unsafe { pg_sys::ReThrowError(data) };
                unreachable!("ReThrowError does not return")
            }
        }
    }
}

/// # Safety
/// A C string, or null.
unsafe fn string(value: *const c_char) -> Option<String> {
    // SAFETY: as the caller says.
    unsafe { (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned()) }
}

/// What a caught error says, as far as pgrx copies it.
pub fn caught(error: &CaughtError) -> &ErrorReportWithLevel {
    match error {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => report,
        CaughtError::RustPanic { ereport, .. } => ereport,
    }
}

/// The five characters of an error code.
pub fn sqlstate(code: PgSqlErrorCode) -> String {
    (0..5).map(|place| char::from(((code as i32 >> (6 * place)) & 0x3F) as u8 + b'0')).collect()
}

/// Where both were due, the server has reported the lock's timeout only, and forgotten the statement's.
pub fn check_statement_timeout() {
    // SAFETY: a setting and two clocks of the server, only read.
    let (limit, begun, now) =
        unsafe { (pg_sys::StatementTimeout, pg_sys::GetCurrentStatementStartTimestamp(), pg_sys::GetCurrentTimestamp()) };
    if limit > 0 && begun > 0 && now - begun >= i64::from(limit) * 1000 {
        pgrx::ereport!(ERROR, PgSqlErrorCode::ERRCODE_QUERY_CANCELED, "canceling statement due to statement timeout");
    }
}

/// Lets the others go on: two that gave up together must not come back together.
fn pause(attempt: u32) {
    let longest = (10 << attempt.min(6)).min(LONGEST_PAUSE);
    // SAFETY: takes no pointers but the server's own state; the sleep ends early when a signal comes.
    unsafe {
        let share = pg_sys::pg_prng_double(&raw mut pg_sys::pg_global_prng_state);
        pg_sys::pg_usleep(Duration::from_millis(longest).mul_f64(share).as_micros() as i64);
    }
    pgrx::check_for_interrupts!();
}
