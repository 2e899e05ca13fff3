//! Every setting of the extension, with the reason for its default.

use awa_ingest_core::route::STRIPE_LIMIT;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::CString;

/// 64 MB: some 300,000 jobs of ordinary size stay in memory, and a handful of such sessions at once do no harm.
static BATCH_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);

/// `auto`: awa's clients know the number of stripes only from their configuration, and the lanes that exist show it.
static QUEUE_STRIPE_COUNT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"auto"));

/// Off: jobs are work that somebody waits for.
static ALLOW_DROP: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Defines the settings and reserves their prefix.
pub fn register() {
    GucRegistry::define_int_guc(
        c"awa_ingest.batch_memory",
        c"Memory that one batch may use beyond its argument before it spills to temporary files.",
        c"A call keeps its jobs in a spool of this size; what exceeds it goes to temporary files.",
        &BATCH_MEMORY,
        64,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_bool_guc(
        c"awa_ingest.allow_drop",
        c"Lets DROP EXTENSION drop undelivered jobs of the embedded storage.",
        c"While off, dropping the extension with undelivered jobs is refused.",
        &ALLOW_DROP,
        GucContext::Suset,
        GucFlags::default(),
    );
    register_stripe_count();
    mark_prefix_reserved();
}

/// Kilobytes for the spool of a call's jobs. A call that may leave out jobs keeps two of them for a moment.
pub fn spool_memory(twice: bool) -> i32 {
    BATCH_MEMORY.get() / 16 * if twice { 6 } else { 12 }
}

/// Kilobytes for the spool of a call's segments, of which there are few as a rule.
pub fn segment_memory() -> i32 {
    BATCH_MEMORY.get() / 16 * 2
}

/// Bytes for the ids that a session remembers of its last COPY.
pub fn outcome_memory() -> usize {
    BATCH_MEMORY.get() as usize * 1024 / 8
}

/// Whether undelivered jobs may be dropped with the extension.
pub fn allow_drop() -> bool {
    ALLOW_DROP.get()
}

/// The number of stripes of every queue, or `None` to go by the lanes that exist.
pub fn queue_stripe_count() -> Option<i32> {
    QUEUE_STRIPE_COUNT.get().and_then(|value| parse_stripe_count(value.to_bytes()).flatten())
}

/// `Some(None)` for `auto`, `None` for anything that is no stripe count.
fn parse_stripe_count(value: &[u8]) -> Option<Option<i32>> {
    let value = std::str::from_utf8(value).ok()?;
    if value.eq_ignore_ascii_case("auto") {
        return Some(None);
    }
    value.parse().ok().filter(|count| (1..=STRIPE_LIMIT as i32).contains(count)).map(Some)
}

#[allow(unsafe_code)]
mod hooks {
    use super::*;
    use pgrx::pg_guard;
    use pgrx::pg_sys;
    use std::ffi::{CStr, c_char, c_void};

    pub(super) fn register_stripe_count() {
        // SAFETY: the check hook is guarded, and reads only the string that it is given.
        unsafe {
            GucRegistry::define_string_guc_with_hooks(
                c"awa_ingest.queue_stripe_count",
                c"Stripes of every queue: auto, or 1 to 64.",
                c"awa's clients are configured with a stripe count; auto goes by the striped lanes that exist. 1 is no striping.",
                &QUEUE_STRIPE_COUNT,
                GucContext::Userset,
                GucFlags::default(),
                Some(check_stripe_count),
                None,
                None,
            );
        }
    }

    pub(super) fn mark_prefix_reserved() {
        // SAFETY: a constant C string, in the only place that defines settings with this prefix.
        unsafe { pg_sys::MarkGUCPrefixReserved(c"awa_ingest".as_ptr()) }
    }

    #[pg_guard]
    unsafe extern "C-unwind" fn check_stripe_count(
        new: *mut *mut c_char,
        _extra: *mut *mut c_void,
        _source: pg_sys::GucSource::Type,
    ) -> bool {
        // SAFETY: the server passes a pointer to a C string, or to NULL for a setting without value.
        let value = unsafe { if (*new).is_null() { return false } else { CStr::from_ptr(*new) } };
        parse_stripe_count(value.to_bytes()).is_some()
    }
}
use hooks::{mark_prefix_reserved, register_stripe_count};
