//! Work that is tried again where it meets others crosswise: in a subtransaction that gives back its locks, with a lock timeout of its own.
//!
//! awa's producers take a key, its lane, the next key. Who takes all keys first can wait for such a producer in a circle, and the server
//! would end one of the two.
#![allow(unsafe_code)]

use crate::cancellation::Before;
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
    /// The advisory lock that is being waited for.
    static ASKED: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Runs `lock`, which waits for the advisory lock with this key.
pub fn asking_for<T>(key: i64, lock: impl FnOnce() -> T) -> T {
    ASKED.set(Some(key));
    let locked = lock();
    ASKED.set(None);
    locked
}

/// Runs `work` until it succeeds. After that many deadlocks or timeouts it runs once more and fails as it fails. The user's lock_timeout is for
/// the wait for one lock, and all attempts at that lock count, with the pauses between.
pub fn insist<T>(mut work: impl FnMut() -> T) -> T {
    let is_first = LAST.get().is_none_or(|last| last.is_before_end(Moment::now()));
    let attempts = if is_first { ATTEMPTS } else { ATTEMPTS_OF_MANY };
    let mut wait = Wait::default();
    for attempt in 0..attempts {
        if let Some(done) = attempt_once(wait.limit(attempt), &mut wait, &mut work) {
            LAST.set(Some(Moment::now()));
            return done;
        }
        pause(attempt, wait.left());
    }
    let last = wait.left().and_then(|left| attempt_once(left, &mut wait, &mut work));
    // Another lock than the one that all attempts waited for: it has the user's lock_timeout for itself.
    last.unwrap_or_else(work)
}

/// What attempts have waited for.
#[derive(Default)]
struct Wait {
    /// The lock that the last attempt waited for, and since when attempts have.
    lock: Option<(Lock, Instant)>,
}

/// A lock, as far as two attempts can be told to have waited for the same: by its key, or by what the server says of the wait, which for a
/// unique key names the row that has it.
#[derive(PartialEq, Eq)]
struct Lock(Option<i64>, String);

impl Wait {
    /// Milliseconds that an attempt may wait for a lock.
    fn limit(&self, attempt: u32) -> i32 {
        // SAFETY: a setting of the server, only read.
        let deadlock = unsafe { pg_sys::DeadlockTimeout };
        // Never the same as deadlock_timeout: of two timeouts at once the server reports one, and the other later.
        let own = (deadlock / 20 * 9).max(1).saturating_mul(1 << attempt.min(PATIENCE));
        self.left().map_or(own, |left| left.min(own))
    }

    /// Milliseconds that are left of the user's lock_timeout, if he has set one.
    fn left(&self) -> Option<i32> {
        let users = server::lock_timeout();
        let elapsed = self.lock.as_ref().map_or(0, |(_, since)| since.elapsed().as_millis());
        // 0 would be no limit.
        (users > 0).then(|| (i128::from(users) - elapsed as i128).max(1) as i32)
    }

    /// Whether the user's lock_timeout is over.
    fn is_over(&self) -> bool {
        let users = server::lock_timeout();
        users > 0 && self.lock.as_ref().is_some_and(|(_, since)| since.elapsed().as_millis() >= users as u128)
    }

    /// An attempt ended while it waited, for so many milliseconds.
    fn ended(&mut self, lock: Lock, waited: i32) {
        if self.lock.as_ref().is_none_or(|(known, _)| *known != lock) {
            let now = Instant::now();
            self.lock = Some((lock, now.checked_sub(Duration::from_millis(waited.max(0) as u64)).unwrap_or(now)));
        }
    }
}

/// `None` if it met a deadlock, or waited for longer than `limit` milliseconds. What it did is rolled back then, and also before any other
/// error goes on: whoever catches that must find the subtransaction that he began.
fn attempt_once<T>(limit: i32, wait: &mut Wait, work: &mut impl FnMut() -> T) -> Option<T> {
    ASKED.set(None);
    let failure = match attempt(|| within(limit, &mut *work)) {
        Ok(done) => return Some(done),
        Err(failure) => failure,
    };
    // SAFETY: a setting of the server, only read.
    let deadlock = unsafe { pg_sys::DeadlockTimeout };
    let waited = match failure.code() {
        PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE => limit,
        PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED => deadlock.min(limit),
        _ => failure.raise(),
    };
    wait.ended(Lock(ASKED.take(), failure.context()), waited);
    if wait.is_over() { failure.raise() } else { None }
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
        let before = Before::attempt();
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
        if matches!(&outcome, Err(failure) if failure.code() == PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE) {
            before.check();
        }
        outcome
    }
}

/// Runs `work` with another lock_timeout, if the user's is not shorter.
pub fn within<T>(milliseconds: i32, work: impl FnOnce() -> T) -> T {
    let users = server::lock_timeout();
    let limit = if users > 0 { users.min(milliseconds) } else { milliseconds };
    let value = CString::new(limit.to_string()).unwrap_or_default();
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

    /// SQLSTATE and message. For an object that is not as it has to be, the detail says which and why.
    pub fn report(&self) -> (String, String) {
        let (code, message, detail) = (self.code(), self.message(), self.detail());
        let is_explained = code == PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE && !detail.is_empty();
        (sqlstate(code), if is_explained { format!("{message}: {detail}") } else { message })
    }

    /// Whether others were in the way: a lock was not to be had in time, or the wait for it stood in a circle.
    pub fn is_contention(&self) -> bool {
        matches!(self.code(), PgSqlErrorCode::ERRCODE_LOCK_NOT_AVAILABLE | PgSqlErrorCode::ERRCODE_T_R_DEADLOCK_DETECTED)
    }

    /// Where it happened, as the server tells it.
    fn context(&self) -> String {
        match self {
            // SAFETY: the copy that `of` made; the server's texts are C strings.
            Self::Server(data) => unsafe {
                let context = (**data).context;
                if context.is_null() { String::new() } else { CStr::from_ptr(context).to_string_lossy().into_owned() }
            },
            Self::Rust(_) => String::new(),
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

/// Lets the others go on: two that gave up together must not come back together. For `left` milliseconds at most.
fn pause(attempt: u32, left: Option<i32>) {
    let longest = (10 << attempt.min(6)).min(LONGEST_PAUSE).min(left.map_or(u64::MAX, |left| left as u64));
    // SAFETY: takes no pointers but the server's own state; the sleep ends early when a signal comes.
    unsafe {
        let share = pg_sys::pg_prng_double(&raw mut pg_sys::pg_global_prng_state);
        pg_sys::pg_usleep(Duration::from_millis(longest).mul_f64(share).as_micros() as i64);
    }
    pgrx::check_for_interrupts!();
}
