//! Entry points in the server's calling convention, around safe functions that return a `Result`.
#![allow(unsafe_code)]

use crate::datum;
use crate::report;
use crate::results::ResultRows;
use awa_ingest_core::error::{Error, Result};
use awa_ingest_core::jsonb::Value;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};

/// The running call of one of this extension's functions. The SQL declaration of the function gives its arguments' types.
pub struct Call(FunctionCallInfo);

impl Call {
    /// The argument's datum; `None` for NULL.
    pub fn argument(&self, index: usize) -> Option<Datum> {
        // SAFETY: the server passes as many arguments as are declared, and the index is below that.
        unsafe {
            let arguments = (*self.0).args.as_slice((*self.0).nargs as usize);
            (!arguments[index].isnull).then_some(arguments[index].value)
        }
    }

    /// The type that an argument has in this call, where the declaration leaves it open; `None` if the caller did not say.
    pub fn argument_type(&self, index: usize) -> Option<Oid> {
        // SAFETY: the call is running; the answer comes from the expression that made it.
        let oid = unsafe { pg_sys::get_fn_expr_argtype((*self.0).flinfo, index as i32) };
        (oid != Oid::INVALID).then_some(oid)
    }

    /// A text argument.
    pub fn text(&self, index: usize) -> Result<Option<&str>> {
        // SAFETY: declared as text; arguments outlive the call.
        self.argument(index).map(|datum| unsafe { datum::text(datum) }).transpose().map_err(|_| Error::Encoding)
    }

    /// An integer argument.
    pub fn integer(&self, index: usize) -> Option<i32> {
        self.argument(index).map(|datum| datum.value() as i32)
    }

    /// A bigint argument.
    pub fn bigint(&self, index: usize) -> Option<i64> {
        self.argument(index).map(|datum| datum.value() as i64)
    }

    /// A jsonb argument.
    pub fn jsonb(&self, index: usize) -> Result<Option<Value<'_>>> {
        // SAFETY: declared as jsonb; arguments outlive the call.
        Ok(self.argument(index).map(|datum| Value::root(unsafe { datum::bytes(datum) })).transpose()?)
    }

    /// A bytea argument.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        // SAFETY: declared as bytea; arguments outlive the call.
        self.argument(index).map(|datum| unsafe { datum::bytes(datum) })
    }

    /// A boolean argument; NULL is false.
    pub fn boolean(&self, index: usize) -> bool {
        self.argument(index).is_some_and(|datum| datum.value() != 0)
    }

    /// An oid argument, such as a regclass.
    pub fn oid(&self, index: usize) -> Option<Oid> {
        self.argument(index).map(|datum| Oid::from(datum.value() as u32))
    }

    /// A smallint argument.
    pub fn smallint(&self, index: usize) -> Option<i16> {
        self.argument(index).map(|datum| datum.value() as i16)
    }

    /// Where the rows of a set-returning function go.
    pub fn rows(&self) -> ResultRows {
        // SAFETY: the call is running, and is declared so.
        unsafe { ResultRows::new(self.0) }
    }

    /// The call itself.
    pub(crate) fn raw(&self) -> FunctionCallInfo {
        self.0
    }

    fn answer(self, result: Result<Option<Datum>>) -> Datum {
        match result {
            Ok(Some(datum)) => datum,
            Ok(None) => {
                // SAFETY: the call is still running.
                unsafe { (*self.0).isnull = true }
                Datum::from(0)
            }
            Err(error) => report::raise(error),
        }
    }
}

/// A function of version 1 of the calling convention, like all.
pub const VERSION_1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

macro_rules! entry_points {
    ($($symbol:ident $finfo:ident => $function:path;)*) => {$(
        #[unsafe(no_mangle)]
        #[doc(hidden)]
        pub extern "C" fn $finfo() -> &'static pg_sys::Pg_finfo_record {
            &VERSION_1
        }

        #[unsafe(no_mangle)]
        #[doc(hidden)]
        #[pgrx::pg_guard]
        pub extern "C-unwind" fn $symbol(fcinfo: FunctionCallInfo) -> Datum {
            let call = Call(fcinfo);
            let result = $function(&call);
            call.answer(result)
        }
    )*};
}

entry_points! {
    awa_ingest_enqueue pg_finfo_awa_ingest_enqueue => crate::functions::enqueue;
    awa_ingest_enqueue_text pg_finfo_awa_ingest_enqueue_text => crate::functions::enqueue_text;
    awa_ingest_enqueue_batch pg_finfo_awa_ingest_enqueue_batch => crate::functions::enqueue_batch;
    awa_ingest_enqueue_batch_text pg_finfo_awa_ingest_enqueue_batch_text => crate::functions::enqueue_batch_text;
    awa_ingest_enqueue_columns pg_finfo_awa_ingest_enqueue_columns => crate::functions::enqueue_columns;
    awa_ingest_enqueue_csv pg_finfo_awa_ingest_enqueue_csv => crate::csv::enqueue_csv;
    awa_ingest_insert_job_compat pg_finfo_awa_ingest_insert_job_compat => crate::compat::insert_job_compat;
    awa_ingest_insert_jobs_compat_batch pg_finfo_awa_ingest_insert_jobs_compat_batch => crate::batch::insert_jobs_compat_batch;
    awa_ingest_insert_many_skip_unique_conflicts pg_finfo_awa_ingest_insert_many_skip_unique_conflicts
        => crate::batch::insert_many_skip_unique_conflicts;
    awa_ingest_last_ingest_jobs pg_finfo_awa_ingest_last_ingest_jobs => crate::last::last_ingest_jobs;
    awa_ingest_attach pg_finfo_awa_ingest_attach => crate::attach::attach;
    awa_ingest_adopt pg_finfo_awa_ingest_adopt => crate::adopt::adopt;
    awa_ingest_discard pg_finfo_awa_ingest_discard => crate::discard::discard;
    awa_ingest_discard_queue pg_finfo_awa_ingest_discard_queue => crate::discard::discard_queue;
    awa_ingest_detach pg_finfo_awa_ingest_detach => crate::attach::detach;
    awa_ingest_fdw_handler pg_finfo_awa_ingest_fdw_handler => crate::foreign::handler;
    awa_ingest_fdw_validator pg_finfo_awa_ingest_fdw_validator => crate::foreign::validate;
    awa_ingest_check_foreign_tables pg_finfo_awa_ingest_check_foreign_tables => crate::foreign::check_foreign_tables;
    awa_ingest_last_ingest pg_finfo_awa_ingest_last_ingest => crate::last::last_ingest;
    awa_ingest_last_ingest_summary pg_finfo_awa_ingest_last_ingest_summary => crate::last::last_ingest_summary;
    awa_ingest_run_maintenance pg_finfo_awa_ingest_run_maintenance => crate::maintenance::run_maintenance;
    awa_ingest_analyze_relation pg_finfo_awa_ingest_analyze_relation => crate::maintenance::analyze_relation;
    awa_ingest_rings pg_finfo_awa_ingest_rings => crate::maintenance::rings;
    awa_ingest_stalled_lane_states pg_finfo_awa_ingest_stalled_lane_states => crate::maintenance::stalled_lane_states;
    awa_ingest_start_worker pg_finfo_awa_ingest_start_worker => crate::workers::start_worker;
    awa_ingest_stop_worker pg_finfo_awa_ingest_stop_worker => crate::workers::stop_worker;
    awa_ingest_announce_worker pg_finfo_awa_ingest_announce_worker => crate::workers::announce_worker;
    awa_ingest_provision_lane pg_finfo_awa_ingest_provision_lane => crate::provision::provision_lane;
    awa_ingest_sequence_position pg_finfo_awa_ingest_sequence_position => crate::sequence::sequence_position;
    awa_ingest_lane_states pg_finfo_awa_ingest_lane_states => crate::reports::lane_states;
    awa_ingest_lane_sequence_problems pg_finfo_awa_ingest_lane_sequence_problems => crate::lane_sequences::lane_sequence_problems;
    awa_ingest_repair_lane_sequence pg_finfo_awa_ingest_repair_lane_sequence => crate::lane_sequences::repair_lane_sequence;
    awa_ingest_read_ingest_stats pg_finfo_awa_ingest_read_ingest_stats => crate::ingest_stats::read_ingest_stats;
    awa_ingest_reset_ingest_stats pg_finfo_awa_ingest_reset_ingest_stats => crate::ingest_stats::reset_ingest_stats;
    awa_ingest_status pg_finfo_awa_ingest_status => crate::status::status;
    awa_ingest_keep_own_rows pg_finfo_awa_ingest_keep_own_rows => crate::replicated::keep_own_rows;
    awa_ingest_guard_drop pg_finfo_awa_ingest_guard_drop => crate::drop_guard::guard_drop;
}
