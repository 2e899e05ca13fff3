//! What EXPLAIN says about a foreign table that an INSERT writes to.
#![allow(unsafe_code)]

use super::statement::Report;
use pgrx::pg_guard;
use pgrx::pg_sys::{self, ExplainState, List, ModifyTableState, ResultRelInfo};
use std::ffi::{CStr, CString, c_int};

/// With ANALYZE: the jobs, how many were left out, and what writing them took. Without, nothing is known yet.
#[pg_guard]
pub unsafe extern "C-unwind" fn modify(
    _modify: *mut ModifyTableState,
    target: *mut ResultRelInfo,
    _private: *mut List,
    _subplan: c_int,
    explain: *mut ExplainState,
) {
    // SAFETY: passed on from the server.
    unsafe {
        let Some(stream) = super::stream(target).filter(|_| (*explain).analyze) else { return };
        let (jobs, reports) = stream.report();
        show(explain, jobs, &reports);
    }
}

/// # Safety
/// The state is of an EXPLAIN under way.
unsafe fn show(explain: *mut ExplainState, jobs: i64, reports: &[Report]) {
    let sum = |of: &dyn Fn(&Report) -> i64| reports.iter().map(of).sum::<i64>();
    // SAFETY: passed on to the caller; labels and units are C strings.
    unsafe {
        let (is_text, is_timed) = ((*explain).format == pg_sys::ExplainFormat::EXPLAIN_FORMAT_TEXT, (*explain).timing);
        let count = |label: &CStr, count| pg_sys::ExplainPropertyInteger(label.as_ptr(), std::ptr::null(), count, explain);
        let text = |label: &CStr, text: &str| {
            let text = CString::new(text).unwrap_or_default();
            pg_sys::ExplainPropertyText(label.as_ptr(), text.as_ptr(), explain);
        };
        count(c"Jobs", jobs);
        let Some(report) = reports.first() else { return };
        text(c"Storage Schema", &report.storage);
        let together = sum(&|report| report.summary.jobs as i64);
        if together != jobs || !is_text {
            count(c"Jobs Written Together", together);
        }
        count(c"Jobs Skipped", sum(&|report| report.skipped));
        count(c"Lanes", sum(&|report| report.summary.lanes as i64));
        if is_timed {
            let waited: f64 = reports.iter().map(|report| report.summary.lane_lock_wait.as_secs_f64()).sum();
            pg_sys::ExplainPropertyFloat(c"Lane Lock Wait".as_ptr(), c"ms".as_ptr(), waited * 1000.0, 3, explain);
        }
        let is_spilled = reports.iter().any(|report| report.summary.is_spilled);
        if is_spilled || !is_text {
            text(c"Spool", if is_spilled { "Disk" } else { "Memory" });
        }
    }
}
