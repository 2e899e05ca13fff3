//! Folds the terminal counts of slots that are done with into one count a lane and bucket.

use super::pass::{Acting, Done};
use super::prune;
use super::ring::{Ring, Slot};
use super::run::Outcome;
use crate::authority::Touched;
use crate::spi::{Rows, Session, View};
use crate::statements::{Statement, Target};
use crate::storage::Storage;

/// What stands in the place of a ring's name.
pub const NAME: &str = "rollup";

/// What says where there is something to fold.
pub const FOUND: Touched = Touched::tables(&["queue_ring_state", "queue_ring_slots", "queue_terminal_count_deltas"]);

/// Slots that one pass folds: as many as awa's.
const MOST_SLOTS: usize = 4;

/// Slots and generations with something to fold, oldest first.
pub fn slots(session: &Session, storage: &Storage) -> Vec<(i32, i64)> {
    let read =
        |rows: &Rows| (0..rows.count).filter_map(|row| Some((rows.get(row, 0)?, rows.get(row, 1)?))).take(MOST_SLOTS).collect();
    prune::carefully(|| session.query(Statement::RollupSlots, &storage.target, &[], View::Write, read))
}

/// Folds one slot's. To be run in a subtransaction: a lock that is not to be had raises 55P03.
pub fn fold(acting: &Acting<'_>, slot: i32, generation: i64) -> Done {
    // Not as the storage's owner, who may not see what others do.
    if acting.session.query(Statement::Pinned, &Target::none(), &[], View::Write, Rows::first) == Some(true) {
        return Done::nothing(Outcome::SkippedPinned);
    }
    let slot = Ring::Queue.slot(acting.storage, slot, generation);
    acting.act(Ring::Queue.touched(), || {
        prune::carefully(|| {
            acting.check(&slot);
            fold_slot(acting.session, acting.storage, &slot)
        })
    })
}

/// What keeps the slot is looked at before and behind the locks, as for a prune.
fn fold_slot(session: &Session, storage: &Storage, slot: &Slot) -> Done {
    if let Some(reason) = slot.gate(session) {
        return Done::nothing(Outcome::SkippedActive(reason));
    }
    Ring::Queue.lock(session, storage);
    slot.lock(session);
    let target = slot.target();
    if session.query(Statement::RollupIsSealed, target, &slot.reference(), View::Write, Rows::first) != Some(true) {
        return Done::nothing(Outcome::Noop(None));
    }
    session.run(Statement::RollupLock, target, &[]);
    if let Some(reason) = slot.gate(session) {
        return Done::nothing(Outcome::SkippedActive(reason));
    }
    let deltas = session.query(Statement::RollupCount, target, &[], View::Write, Rows::first::<i64>);
    session.run(Statement::RollupFold, target, &[]);
    session.run(Statement::RollupTruncate, target, &[]);
    Done { outcome: Outcome::Rolled, rows: deltas, changed: true }
}
