//! `awa_ingest.rings`: the slots of the rings, for people.

use super::pass;
use super::ring::{Found, Ring};
use crate::entry::Call;
use crate::results::ResultRows;
use crate::spi::{self, Rows, Session, View, argument};
use crate::statements::{OWN_POSITION, Statement};
use crate::storage::{Engine, Mode, Storage, Version};
use awa_ingest_core::error::Result;
use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

/// `awa_ingest.ring_slots`: a row `(ring, slot, generation, current, rows, prunable, reason)` for each slot. Rows are those that the server's
/// statistics know of. Only the oldest slot of a ring can be prunable: it is looked at as a prune does before it locks anything. The
/// embedded storage has the queue ring only, and nothing in it is prunable yet; the canonical engine has no rings.
///
/// Raises 55000 where the storage is unknown. Needs SELECT on the rings' tables.
pub fn rings(call: &Call) -> Result<Option<Datum>> {
    let mut rows = call.rows();
    spi::connect(|session| {
        let mut storage = Storage::resolve(session, View::Caller, Version::Checked)?;
        // Superusers look at views, too.
        storage.target.position = OWN_POSITION;
        if storage.engine == Engine::QueueStorage {
            let rings: &[Ring] = if storage.mode == Mode::Embedded { &[Ring::Queue] } else { &Ring::ALL };
            rings.iter().for_each(|ring| put(&mut rows, session, &storage, *ring));
        }
        Ok(None)
    })
}

struct Listed {
    number: i32,
    generation: Option<i64>,
    current: bool,
    rows: i64,
}

fn put(rows: &mut ResultRows, session: &Session, storage: &Storage, ring: Ring) {
    let is_subscribed = pass::is_subscribed(session, storage);
    let state = if is_subscribed || storage.mode == Mode::Embedded { None } else { verdict(session, storage, ring) };
    for slot in slots(session, storage, ring) {
        let (prunable, reason) = match &state {
            _ if slot.current => (false, Some("current")),
            _ if slot.generation.is_none() => (false, Some("unused")),
            None if is_subscribed => (false, Some("subscribed")),
            None => (false, Some("embedded_storage")),
            Some((oldest, found)) if *oldest == slot.number => match found {
                Found::Prunable => (true, None),
                Found::Empty | Found::CountsOnly => (false, Some("empty")),
                Found::Active(reason) => (false, Some(*reason)),
            },
            Some(_) => (false, Some("not_oldest")),
        };
        rows.put([
            ring.name().into_datum(),
            slot.number.into_datum(),
            slot.generation.into_datum(),
            slot.current.into_datum(),
            slot.rows.into_datum(),
            prunable.into_datum(),
            reason.into_datum(),
        ]);
    }
}

/// The oldest slot, and what is found in it; slot -1 where there is none.
fn verdict(session: &Session, storage: &Storage, ring: Ring) -> Option<(i32, Found)> {
    Some(ring.oldest(session, storage).map_or((-1, Found::Empty), |slot| (slot.number, slot.look(session))))
}

fn slots(session: &Session, storage: &Storage, ring: Ring) -> Vec<Listed> {
    let target = ring.target(storage);
    let tables: Vec<&str> = ring.tables().to_vec();
    let read = |rows: &Rows| {
        let list = |row| Listed {
            number: rows.get(row, 0).unwrap_or_default(),
            generation: rows.get(row, 1),
            current: rows.get(row, 2).unwrap_or_default(),
            rows: rows.get(row, 3).unwrap_or_default(),
        };
        rows.map(list).collect()
    };
    session.query(Statement::RingSlots, &target, &[argument(tables), argument(storage.schema_oid)], View::Caller, read)
}
