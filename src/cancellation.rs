//! Tells what would have ended the statement from what ended an attempt within it.
//!
//! An attempt waits for locks with a lock_timeout of its own. When that is due, the server sends this process the signal of a cancellation
//! and reports a lock timeout; a statement_timeout or a cancellation of the same moment goes with it, since there is one mark for all of
//! them. Both are known here by other means: the statement's timer, and who sent the signal.
#![allow(unsafe_code)]

use pgrx::{PgSqlErrorCode, check_for_interrupts};
use std::ffi::{c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// `STATEMENT_TIMEOUT` of `utils/timeout.h`, in all versions.
const STATEMENT_TIMEOUT: c_int = 3;

unsafe extern "C-unwind" {
    fn get_timeout_active(id: c_int) -> bool;
}

/// Cancellations that others asked for since the first look.
static CANCELLATIONS: AtomicU32 = AtomicU32::new(0);

/// What handles the signal besides, as an address.
static SERVERS: AtomicUsize = AtomicUsize::new(0);

/// What could end the statement when an attempt began.
#[derive(Clone, Copy)]
pub struct Before {
    is_timed: bool,
    cancellations: u32,
}

impl Before {
    /// At the beginning of an attempt.
    pub fn attempt() -> Self {
        watch();
        Self { is_timed: is_timed(), cancellations: CANCELLATIONS.load(Ordering::SeqCst) }
    }

    /// Behind an attempt that ended with a lock timeout: raises 57014 if the statement was to end meanwhile.
    pub fn check(self) {
        // What the server has not forgotten it raises itself.
        check_for_interrupts!();
        if self.is_timed && !is_timed() {
            pgrx::ereport!(ERROR, PgSqlErrorCode::ERRCODE_QUERY_CANCELED, "canceling statement due to statement timeout");
        }
        if self.cancellations != CANCELLATIONS.load(Ordering::SeqCst) {
            pgrx::ereport!(ERROR, PgSqlErrorCode::ERRCODE_QUERY_CANCELED, "canceling statement due to user request");
        }
    }
}

/// Whether a statement_timeout is running. The setting does not tell: it may have changed since the statement began.
fn is_timed() -> bool {
    // SAFETY: reads the state of the process's timers; the id is one that every backend registers.
    unsafe { get_timeout_active(STATEMENT_TIMEOUT) }
}

/// Has cancellations counted, in front of what the server does with them.
fn watch() {
    static WATCH: Once = Once::new();
    // SAFETY: handler and flags fit each other; the server's own handler, if it has one, is called by ours, and its mask is kept.
    WATCH.call_once(|| unsafe {
        let mut servers: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGINT, std::ptr::null(), &mut servers) != 0 || servers.sa_flags & libc::SA_SIGINFO != 0 {
            return;
        }
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&servers.sa_sigaction) {
            SERVERS.store(servers.sa_sigaction, Ordering::SeqCst);
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = count;
            let ours = libc::sigaction { sa_sigaction: handler as usize, sa_flags: servers.sa_flags | libc::SA_SIGINFO, ..servers };
            libc::sigaction(libc::SIGINT, &ours, std::ptr::null_mut());
        }
    });
}

/// The server signals its own process when a timeout is due.
extern "C" fn count(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the system passes where the signal comes from; the address is of a handler that takes the signal alone. Nothing here allocates.
    unsafe {
        if (*info).si_pid() != libc::getpid() {
            CANCELLATIONS.fetch_add(1, Ordering::SeqCst);
        }
        let servers: extern "C" fn(c_int) = std::mem::transmute(SERVERS.load(Ordering::SeqCst));
        servers(signal);
    }
}
