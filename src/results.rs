//! Where a call's results go: into the rows of a set-returning function, into the one id of a scalar one, or into what the session
//! remembers.
#![allow(unsafe_code)]

use crate::entry::Call;
use crate::spi::{Cursor, Session};
use crate::storage::Storage;
use awa_ingest_core::error::Result;
use awa_ingest_core::outcome::Outcome;
use pgrx::pg_sys::{self, Datum};

/// Takes the outcome of each job, in input order.
pub trait Results {
    /// The job at `ord` has this id.
    fn enqueued(&mut self, ord: i64, job_id: i64);
    /// The job at `ord` was left out because `holder` has its key.
    fn skipped(&mut self, ord: i64, holder: Option<i64>);
    /// What was reported so far does not hold: all jobs are reported again.
    fn restart(&mut self);
    /// All are written, and the spool still holds them. `now` is the time of writing.
    fn written(&mut self, _session: &Session, _storage: &Storage, _now: i64) -> Result<()> {
        Ok(())
    }
}

/// The id of a single job.
#[derive(Default)]
pub struct SingleId(pub Option<i64>);

impl Results for SingleId {
    fn enqueued(&mut self, _ord: i64, job_id: i64) {
        self.0 = Some(job_id);
    }

    fn skipped(&mut self, _ord: i64, _holder: Option<i64>) {}

    fn restart(&mut self) {
        self.0 = None;
    }
}

impl Results for Outcome {
    fn enqueued(&mut self, _ord: i64, job_id: i64) {
        self.enqueued(job_id);
    }

    fn skipped(&mut self, _ord: i64, holder: Option<i64>) {
        self.skipped(holder);
    }

    fn restart(&mut self) {
        self.clear();
    }
}

/// The rows of a function, kept by the server in memory up to work_mem and in temporary files beyond.
pub struct ResultRows {
    info: *mut pg_sys::ReturnSetInfo,
}

impl ResultRows {
    /// The result of the current call.
    ///
    /// # Safety
    /// `fcinfo` is the running call of a function that returns rows, each of which has the columns that are put; it outlives this.
    pub unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        // SAFETY: the server checks that the caller takes a set, and makes the store in the memory of the caller's query.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo, 0);
            Self { info: (*fcinfo).resultinfo.cast() }
        }
    }

    /// Appends a row; `None` is NULL.
    pub fn put<const N: usize>(&mut self, row: [Option<Datum>; N]) {
        let mut values = row.map(|value| value.unwrap_or(Datum::from(0)));
        let mut nulls = row.map(|value| value.is_none());
        // SAFETY: store and descriptor were made by the server for the function's columns, which the row has.
        unsafe {
            pg_sys::tuplestore_putvalues((*self.info).setResult, (*self.info).setDesc, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
    }
}

impl ResultRows {
    /// Appends all rows of a cursor, which have the function's columns, and closes it.
    pub fn take(&mut self, mut cursor: Cursor) {
        // SAFETY: the store was made by the server; it copies the tuples.
        let put = |tuple| unsafe { pg_sys::tuplestore_puttuple((*self.info).setResult, tuple) };
        while cursor.fetch(|rows| rows.tuples().map(put).count()) > 0 {
            pgrx::check_for_interrupts!();
        }
        cursor.close();
    }
}

impl Results for ResultRows {
    fn enqueued(&mut self, ord: i64, job_id: i64) {
        self.put([Some(ord), Some(job_id), None].map(|value| value.map(Datum::from)));
    }

    fn skipped(&mut self, ord: i64, holder: Option<i64>) {
        self.put([Some(ord), None, holder].map(|value| value.map(Datum::from)));
    }

    fn restart(&mut self) {
        // SAFETY: the server's own store; nobody has read from it yet.
        unsafe { pg_sys::tuplestore_clear((*self.info).setResult) }
    }
}

/// The value of a function that returns one record.
pub fn record<const N: usize>(call: &Call, row: [Option<Datum>; N]) -> Datum {
    let mut values = row.map(|value| value.unwrap_or(Datum::from(0)));
    let mut nulls = row.map(|value| value.is_none());
    // SAFETY: the function is declared with these columns, which the server resolves to a descriptor; the tuple is a copy.
    unsafe {
        let mut descriptor = std::ptr::null_mut();
        pg_sys::get_call_result_type(call.raw(), std::ptr::null_mut(), &mut descriptor);
        let descriptor = pg_sys::BlessTupleDesc(descriptor);
        let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
    }
}
