//! What views show people.

use crate::entry::Call;
use crate::spi::{self, View, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Mode, Storage, Version};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::Datum;

/// `awa_ingest.lane_states`: the rows of `awa_ingest.lanes`, none while awa's canonical engine is active. Needs SELECT on the head tables and
/// ready_segments, and with awa on ready_tombstones; positions of claim sequences that the caller may not read are NULL. Raises 55000 for
/// an unknown storage.
pub fn lane_states(call: &Call) -> Result<Option<Datum>> {
    let mut rows = call.rows();
    spi::connect(|session| {
        let storage = Storage::resolve(session, View::Caller, Version::Checked)?;
        if storage.engine == Engine::QueueStorage {
            let statement = match storage.mode {
                // A view in its place would run with the caller's rights whatever its owner wants.
                Mode::Attached if !storage.has_table("ready_tombstones") => {
                    return Err(Error::UnknownStorage("table ready_tombstones is missing".into()));
                }
                Mode::Attached => Statement::LaneStatesAwa,
                Mode::Embedded => Statement::LaneStates,
            };
            rows.take(session.open(statement, &storage.target, &[argument(&*storage.schema)]));
        }
        Ok(None)
    })
}
