//! What views show people.

use crate::authority::{self, Touched};
use crate::entry::Call;
use crate::positions;
use crate::spi::{self, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Mode};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::Datum;

const LANES: Touched = Touched::tables(&["queue_enqueue_heads", "queue_claim_heads", "ready_segments"]);
const LANES_AWA: Touched = Touched::tables(&["queue_enqueue_heads", "queue_claim_heads", "ready_segments", "ready_tombstones"]);

/// `awa_ingest.lane_states`: the rows of `awa_ingest.lanes`, none while awa's canonical engine is active. Needs SELECT on the head tables and
/// ready_segments, and with awa on ready_tombstones; positions of claim sequences that the caller may not read are NULL. Raises 55000 for
/// an unknown storage.
pub fn lane_states(call: &Call) -> Result<Option<Datum>> {
    let mut rows = call.rows();
    spi::connect(|session| {
        let storage = authority::resolve_to_read(session)?;
        if storage.engine == Engine::QueueStorage {
            let (statement, touched) = match storage.mode {
                // A view in its place would run with the caller's rights whatever its owner wants.
                Mode::Attached if !storage.has_table("ready_tombstones") => {
                    return Err(Error::UnknownStorage("table ready_tombstones is missing".into()));
                }
                Mode::Attached => (Statement::LaneStatesAwa, LANES_AWA),
                Mode::Embedded => (Statement::LaneStates, LANES),
            };
            positions::show(session, &storage);
            authority::read(&storage, touched, || {
                rows.take(session.open(statement, &storage.target, &[argument(&*storage.schema)]))
            })?;
        }
        Ok(None)
    })
}
