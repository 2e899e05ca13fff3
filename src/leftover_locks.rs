//! Releases session locks that awa's functions leave behind.
//!
//! awa's head triggers call `set_sequence_next`, which takes an advisory lock of the session on the sequence's name and releases it under
//! WHEN OTHERS. A cancellation and a statement_timeout are not among the others: the lock would stay until the session ends, and the queue's
//! other producers would wait that long.
#![allow(unsafe_code)]

use crate::server;
use crate::spi::argument;
use crate::storage::Storage;
use pgrx::PgTryBuilder;
use pgrx::direct_function_call;
use pgrx::pg_sys::{self, LOCKTAG};
use std::panic::AssertUnwindSafe;

/// Runs `work`, which makes a lane by awa's functions. Where it fails, session locks on the lane's sequences that the session did not hold
/// before are released; the error goes on as it is.
pub fn releasing<T>(storage: &Storage, queue: &str, priority: i16, shard: i16, work: impl FnOnce() -> T) -> T {
    // Who holds one already keeps it: how often he took it cannot be told.
    let free: Vec<LOCKTAG> = locks(storage, queue, priority, shard).into_iter().filter(|lock| !is_held(lock)).collect();
    let release = move |error: pgrx::pg_sys::panic::CaughtError| -> T {
        // SAFETY: the session holds the lock, and no catalog is needed to release it.
        free.iter().filter(|lock| is_held(lock)).for_each(|lock| unsafe {
            pg_sys::LockRelease(lock, pg_sys::ExclusiveLock as i32, true);
        });
        error.rethrow()
    };
    PgTryBuilder::new(AssertUnwindSafe(work)).catch_others(release).execute()
}

/// The locks of the lane's two sequences. Their names are quoted as the session's quote_all_identifiers has it, which awa's function obeys.
fn locks(storage: &Storage, queue: &str, priority: i16, shard: i16) -> Vec<LOCKTAG> {
    // SAFETY: the function gets the one argument of its SQL signature.
    let lane = unsafe { direct_function_call::<String>(pg_sys::md5_text, &[argument(format!("{queue}:{priority}:{shard}"))]) };
    let lane = lane.unwrap_or_default();
    let names = ["enqueue", "claim"].map(|side| format!("queue_{side}_seq_{lane}"));
    let plain = names.iter().map(|name| format!("{}.{name}", storage.target.storage));
    let quoted = names.iter().map(|name| format!("\"{}\".\"{name}\"", storage.schema));
    plain.chain(quoted).map(|name| advisory(&name)).collect()
}

/// The lock that SQL takes with `pg_advisory_lock(hashtextextended(name, 0))`.
fn advisory(name: &str) -> LOCKTAG {
    // SAFETY: the hash reads the bytes given.
    let key = unsafe { pg_sys::hash_bytes_extended(name.as_ptr(), name.len() as i32, 0) };
    LOCKTAG {
        locktag_field1: server::database().to_u32(),
        locktag_field2: (key >> 32) as u32,
        locktag_field3: key as u32,
        locktag_field4: 1,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

/// Whether this session or its transaction holds the lock.
fn is_held(lock: &LOCKTAG) -> bool {
    let mode = pg_sys::ExclusiveLock as i32;
    // SAFETY: looks into the process's own table of locks.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::LockHeldByMe(lock, mode);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        return pg_sys::LockHeldByMe(lock, mode, false);
    }
}
