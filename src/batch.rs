//! Enqueueing many jobs at once for clients that want rows of `awa.jobs` back. Semantics are the specification's, section 3.

use crate::arguments::{COMPAT_POSITIONS, Columns};
use crate::entry::Call;
use crate::ingest::{Ingest, OnConflict};
use crate::jobs::RowType;
use crate::results::{ResultRows, Results};
use crate::server;
use crate::spi::Session;
use crate::statements::Statement;
use crate::storage::{Engine, Mode, Storage};
use awa_ingest_core::decode;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::jsonb::Value;
use pgrx::pg_sys::Datum;

/// `awa_ingest.insert_jobs_compat_batch`: jobs from parallel arrays, as `awa.enqueue_columns` takes them, but that a job without a state is
/// `available` whatever its `run_at`, as for `awa.insert_job_compat`. One row of `awa.jobs` for each job enqueued, in input order.
///
/// Raises what `awa.enqueue_columns` raises. Needs what `awa_ingest.grant_producer` grants.
pub fn insert_jobs_compat_batch(call: &Call) -> Result<Option<Datum>> {
    let on_conflict = if call.boolean(12) { OnConflict::Skip } else { OnConflict::Error };
    let mut columns = Columns::open(call, COMPAT_POSITIONS)?;
    let mut ingest = Ingest::new(on_conflict, JobRows::of(call)?)?.for_awa();
    for _ in 0..columns.jobs() {
        ingest.add(columns.next_draft().map(|mut draft| {
            draft.state.get_or_insert("available");
            draft
        }))?;
    }
    ingest.finish()?;
    Ok(None)
}

/// `awa_ingest.insert_many_skip_unique_conflicts`: jobs from a JSON array of job objects, without those whose key is taken. One row of
/// `awa.jobs` for each job enqueued, in input order.
///
/// Raises what `awa.enqueue_batch` raises when told to skip. Needs what `awa_ingest.grant_producer` grants.
pub fn insert_many_skip_unique_conflicts(call: &Call) -> Result<Option<Datum>> {
    let rows = JobRows::of(call)?;
    let jobs = match call.jsonb(0)? {
        None => return Ok(None),
        Some(Value::Array(jobs)) => jobs,
        Some(_) => return Err(Error::NotAnArray),
    };
    let mut ingest = Ingest::new(OnConflict::Skip, rows)?.for_awa();
    for job in jobs.elements()? {
        ingest.add(job.map_err(Fault::from).and_then(decode::object))?;
    }
    ingest.finish()?;
    Ok(None)
}

/// The jobs themselves, read back from the spool when they are written.
struct JobRows(ResultRows);

impl JobRows {
    fn of(call: &Call) -> Result<Self> {
        RowType::of(call)?;
        Ok(Self(call.rows()))
    }
}

impl Results for JobRows {
    fn enqueued(&mut self, _ord: i64, _job_id: i64) {}

    fn skipped(&mut self, _ord: i64, _holder: Option<i64>) {}

    fn restart(&mut self) {}

    fn written(&mut self, session: &Session, storage: &Storage, now: i64) -> Result<()> {
        if storage.mode == Mode::Embedded {
            return Err(Error::NoAwa);
        }
        let written = match storage.engine {
            Engine::QueueStorage => now,
            Engine::Canonical => server::transaction_clock(),
        };
        self.0.take(session.open(Statement::SpooledJobs, &storage.target, &[written, now].map(|time| Some(Datum::from(time)))));
        Ok(())
    }
}
