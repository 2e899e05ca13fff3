//! Where a call's results go: into the rows of a set-returning function, or into the one id of a scalar one.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum};

/// Takes the outcome of each job, in input order.
pub trait Results {
    /// The job at `ord` has this id.
    fn enqueued(&mut self, ord: i64, job_id: i64);
    /// The job at `ord` was left out because `holder` has its key.
    fn skipped(&mut self, ord: i64, holder: Option<i64>);
}

/// The id of a single job.
#[derive(Default)]
pub struct SingleId(pub Option<i64>);

impl Results for SingleId {
    fn enqueued(&mut self, _ord: i64, job_id: i64) {
        self.0 = Some(job_id);
    }

    fn skipped(&mut self, _ord: i64, _holder: Option<i64>) {}
}

/// Rows `(ord, job_id, conflicts_with)`, kept by the server in memory up to work_mem and in temporary files beyond.
pub struct ResultRows {
    info: *mut pg_sys::ReturnSetInfo,
}

impl ResultRows {
    /// The result of the current call.
    ///
    /// # Safety
    /// `fcinfo` is the running call of a function that returns such rows, and outlives this.
    pub unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        // SAFETY: the server checks that the caller takes a set, and makes the store in the memory of the caller's query.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo, 0);
            Self { info: (*fcinfo).resultinfo.cast() }
        }
    }

    fn put(&mut self, ord: i64, job_id: Option<i64>, holder: Option<i64>) {
        let row = [Some(ord), job_id, holder];
        let mut values = row.map(|value| Datum::from(value.unwrap_or_default()));
        let mut nulls = row.map(|value| value.is_none());
        // SAFETY: store and descriptor were made by the server for the function's three bigint columns.
        unsafe {
            pg_sys::tuplestore_putvalues((*self.info).setResult, (*self.info).setDesc, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
    }
}

impl Results for ResultRows {
    fn enqueued(&mut self, ord: i64, job_id: i64) {
        self.put(ord, Some(job_id), None);
    }

    fn skipped(&mut self, ord: i64, holder: Option<i64>) {
        self.put(ord, None, holder);
    }
}
