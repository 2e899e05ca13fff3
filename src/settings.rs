//! Every setting of the extension, with the reason for its default.

use crate::server;
use crate::storage::Mode;
use awa_ingest_core::route::STRIPE_LIMIT;
use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::{CStr, CString};
use std::time::Duration;

/// 64 MB: some 300,000 jobs of ordinary size stay in memory, and a handful of such sessions at once do no harm.
static BATCH_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);

/// `auto`: awa's clients know the number of stripes only from their configuration, and the lanes that exist show it.
static QUEUE_STRIPE_COUNT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"auto"));

/// Off: jobs are work that somebody waits for.
static ALLOW_DROP: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Empty: whoever preloads the library wants the upkeep wherever the extension is.
static DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// 5 minutes: plans go wrong when a ring's tables grow from nothing to millions, and a pass samples 30,000 rows a table.
static STATISTICS_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(300);

/// A minute: longer than any sample takes on a healthy disk, and short enough for the snapshot that it holds.
static STATISTICS_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(60_000);

/// -1: awa's own leader prunes its storage.
static PRUNE_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(-1);

/// 10 seconds: a lane that stands has lost a worker a moment before, and looking at thousands that do not takes milliseconds.
static LANES_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(10_000);

/// 72 hours, as awa's workers have it.
static FAILED_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(72 * 3600);

/// 10,000 rows: an hour of a busy ring, in a megabyte or two.
static MAINTENANCE_HISTORY: GucSetting<i32> = GucSetting::<i32>::new(10_000);

/// The real time.
static CLOCK_OFFSET: GucSetting<i32> = GucSetting::<i32>::new(0);

/// Off: whoever sets it, or resets all settings, forgets the session's last COPY or INSERT.
static HAS_LAST_INGEST: GucSetting<bool> = GucSetting::<bool>::new(false);

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
    register_last_ingest();
    register_maintenance();
    mark_prefix_reserved();
}

fn register_maintenance() {
    register_databases();
    let intervals = [
        (
            c"awa_ingest.statistics_interval",
            c"Time between two refreshes of the planner's statistics; 0 turns them off.",
            c"A worker also refreshes them when it starts, and leaves them alone where nothing has changed.",
            &STATISTICS_INTERVAL,
            GucFlags::UNIT_S,
            0,
        ),
        (
            c"awa_ingest.statistics_timeout",
            c"Longest time that a worker's ANALYZE of one table may take; 0 for no limit.",
            c"Tables whose ANALYZE takes longer are recorded as failed, and tried again at the next interval.",
            &STATISTICS_TIMEOUT,
            GucFlags::UNIT_MS,
            0,
        ),
        (
            c"awa_ingest.prune_interval",
            c"Time between two passes that prune the rings; 0 turns them off.",
            c"-1 is a second on the embedded storage, and off on awa's, which awa's own leader prunes.",
            &PRUNE_INTERVAL,
            GucFlags::UNIT_MS,
            -1,
        ),
        (
            c"awa_ingest.lanes_interval",
            c"Time between two looks for lanes that stand; 0 turns them off.",
            c"A lane stands where the claim cursor is before a gap, and the jobs behind the gap are claimed. awa never moves it again.",
            &LANES_INTERVAL,
            GucFlags::UNIT_MS,
            0,
        ),
        (
            c"awa_ingest.failed_retention",
            c"How long failed jobs stay in the ring, where they can be retried, after they failed.",
            c"A prune carries younger ones into the current slot. Give it the value that awa's workers have; 0 keeps none.",
            &FAILED_RETENTION,
            GucFlags::UNIT_S,
            0,
        ),
        (
            c"awa_ingest.maintenance_history",
            c"Rows that awa_ingest.maintenance_runs keeps.",
            c"Older ones are deleted as new ones come.",
            &MAINTENANCE_HISTORY,
            GucFlags::default(),
            1,
        ),
    ];
    for (name, short, long, setting, flags, least) in intervals {
        GucRegistry::define_int_guc(name, short, long, setting, least, i32::MAX, GucContext::Suset, flags);
    }
    GucRegistry::define_int_guc(
        c"awa_ingest.clock_offset",
        c"Seconds by which the clock of maintenance is ahead.",
        c"For tests: intervals and retentions are over so much earlier.",
        &CLOCK_OFFSET,
        0,
        i32::MAX,
        GucContext::Suset,
        GucFlags::UNIT_S,
    );
}

const LAST_INGEST: &CStr = c"awa_ingest.has_last_ingest";

/// Notes in the session's settings that there is a last COPY or INSERT. To be called before it is kept, since every assignment forgets.
pub fn note_last_ingest() {
    server::set_for_session(LAST_INGEST, c"on");
}

/// The databases that the launcher serves; `None` for all.
pub fn databases() -> Option<CString> {
    DATABASES.get().filter(|list| !list.to_bytes().trim_ascii().is_empty())
}

/// Time between two refreshes of statistics; `None` for never.
pub fn statistics_interval() -> Option<Duration> {
    seconds(&STATISTICS_INTERVAL)
}

/// Milliseconds that an ANALYZE may take; 0 for no limit.
pub fn statistics_timeout() -> i32 {
    STATISTICS_TIMEOUT.get()
}

/// Time between two prunes; `None` for never.
pub fn prune_interval(mode: Mode) -> Option<Duration> {
    match (PRUNE_INTERVAL.get(), mode) {
        (-1, Mode::Embedded) => Some(Duration::from_secs(1)),
        (interval, _) => (interval > 0).then(|| Duration::from_millis(interval as u64)),
    }
}

/// Time between two looks for lanes that stand; `None` for never.
pub fn lanes_interval() -> Option<Duration> {
    let interval = LANES_INTERVAL.get();
    (interval > 0).then(|| Duration::from_millis(interval as u64))
}

/// How long failed jobs stay; `None` for not at all.
pub fn failed_retention() -> Option<Duration> {
    seconds(&FAILED_RETENTION)
}

/// Rows that the record of runs keeps.
pub fn maintenance_history() -> i32 {
    MAINTENANCE_HISTORY.get()
}

/// By how much the clock of maintenance is ahead.
pub fn clock_offset() -> Duration {
    seconds(&CLOCK_OFFSET).unwrap_or_default()
}

fn seconds(setting: &GucSetting<i32>) -> Option<Duration> {
    let seconds = setting.get();
    (seconds > 0).then(|| Duration::from_secs(seconds as u64))
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
    use std::ffi::{c_char, c_void};

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

    /// There is no callback for DISCARD ALL, but it resets settings.
    pub(super) fn register_last_ingest() {
        // SAFETY: the assign hook raises nothing.
        unsafe {
            GucRegistry::define_bool_guc_with_hooks(
                LAST_INGEST,
                c"Whether the session remembers its last COPY or INSERT into a foreign table.",
                c"Set by awa_ingest. Any other assignment, such as that of DISCARD ALL, forgets it.",
                &HAS_LAST_INGEST,
                GucContext::Userset,
                GucFlags::NO_SHOW_ALL | GucFlags::DISALLOW_IN_FILE,
                None,
                Some(forget_last_ingest),
                None,
            );
        }
    }

    #[pg_guard]
    unsafe extern "C-unwind" fn forget_last_ingest(_new: bool, _extra: *mut c_void) {
        crate::last::begin();
    }

    pub(super) fn register_databases() {
        // SAFETY: the check hook is guarded, and reads only the string that it is given.
        unsafe {
            GucRegistry::define_string_guc_with_hooks(
                c"awa_ingest.databases",
                c"Databases that the launcher keeps workers in, separated by commas; empty for all with the extension.",
                c"Matters where the library is preloaded. Names with commas or spaces may stand in double quotes.",
                &DATABASES,
                GucContext::Sighup,
                GucFlags::default(),
                Some(check_databases),
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
    unsafe extern "C-unwind" fn check_databases(
        new: *mut *mut c_char,
        _extra: *mut *mut c_void,
        _source: pg_sys::GucSource::Type,
    ) -> bool {
        // SAFETY: as below; the function splits a copy.
        unsafe {
            let mut names = std::ptr::null_mut();
            (*new).is_null() || pg_sys::SplitGUCList(pg_sys::pstrdup(*new), b',' as _, &mut names)
        }
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
use hooks::{mark_prefix_reserved, register_databases, register_last_ingest, register_stripe_count};
