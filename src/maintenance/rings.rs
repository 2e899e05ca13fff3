//! `awa_ingest.rings`: the slots of the rings, for people.

use super::pass::{self, Rights};
use super::ring::{Found, Ring};
use crate::authority::{self, Touched};
use crate::entry::Call;
use crate::positions;
use crate::results::ResultRows;
use crate::spi::{self, Rows, Session, View, argument};
use crate::statements::{OWN_POSITION, Statement};
use crate::storage::{Engine, Mode, Storage};
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
        let mut storage = authority::resolve_to_read(session)?;
        // A look must not depend on the function of another role.
        storage.target.position = OWN_POSITION;
        if storage.engine == Engine::QueueStorage {
            positions::show(session, &storage);
            let embedded = (&[Ring::Queue][..], EMBEDDED);
            let rights = Rights::of_caller();
            let awas = (&Ring::ALL[..], AWAS);
            let (rings, touched) = if storage.mode == Mode::Embedded { embedded } else { awas };
            authority::read(&storage, touched, || {
                rings.iter().try_for_each(|ring| put(&mut rows, session, &storage, *ring, rights))
            })??;
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

/// Tables that are read of the embedded storage, and of awa's.
const EMBEDDED: Touched = Touched::tables(&["queue_ring_state"]);
const AWAS: Touched = Touched::tables(&[
    "queue_ring_state",
    "queue_ring_slots",
    "lease_ring_state",
    "claim_ring_state",
    "queue_claim_heads",
    "leases",
    "lease_claims",
    "lease_claim_batches",
    "lease_claim_closures",
    "lease_claim_closure_batches",
    "queue_terminal_live_counts",
]);

fn put(rows: &mut ResultRows, session: &Session, storage: &Storage, ring: Ring, rights: Rights) -> Result<()> {
    let is_subscribed = pass::is_subscribed(session, storage);
    let is_told = is_subscribed || storage.mode == Mode::Embedded;
    let state = if is_told { None } else { verdict(session, storage, ring, rights)? };
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
    Ok(())
}

/// The oldest slot, and what is found in it; slot -1 where there is none.
fn verdict(session: &Session, storage: &Storage, ring: Ring, rights: Rights) -> Result<Option<(i32, Found)>> {
    let Some(slot) = ring.oldest(session, storage) else { return Ok(Some((-1, Found::Empty))) };
    if rights == Rights::Owner {
        slot.settle(storage)?;
    }
    Ok(Some((slot.number, slot.look(session))))
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
