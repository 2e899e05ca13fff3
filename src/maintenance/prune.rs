//! Empties the oldest slot of a ring, where nothing needs it any more.
//!
//! Everything that can make it needed is looked at before the slot's partitions are locked, so that a slot in use is left alone, and
//! again behind the lock, which waits for whoever was writing.

use super::pass::{Acting, Done};
use super::ring::{Found, Ring};
use super::run::Outcome;
use crate::report;
use crate::server;
use crate::settings;
use crate::subtransaction;
use std::cell::Cell;

/// Milliseconds that a pass waits for a lock: as long as awa's own, shorter than anybody notices behind its request.
const PATIENCE: i32 = 10;

/// A `timestamptz` after all others.
const NEVER: i64 = i64::MAX;

/// Puts the number of the oldest slot into `number`, so that a step that is blocked early names it as well.
pub fn name(acting: &Acting<'_>, ring: Ring, number: &Cell<Option<i32>>) {
    let find = || carefully(|| ring.oldest(acting.session, acting.storage));
    number.set(acting.act(ring.cursor(), find).map(|slot| slot.number));
}

/// Prunes the oldest slot, and puts its number into `number`. To be run in a subtransaction: a lock that is not to be had raises 55P03.
pub fn oldest(acting: &Acting<'_>, ring: Ring, number: &Cell<Option<i32>>) -> Done {
    let (session, storage) = (acting.session, acting.storage);
    carefully(|| {
        // 1. Without locks: they are written to the log, and an idle ring is looked at every second.
        let Some(slot) = ring.oldest(session, storage) else { return Done::nothing(Outcome::Noop(None)) };
        number.set(Some(slot.number));
        acting.check(&slot);
        match slot.look(session) {
            Found::Empty => return nothing(number),
            Found::Active(reason) => return Done::nothing(Outcome::SkippedActive(reason)),
            Found::CountsOnly | Found::Prunable => {}
        }
        // 2. The ring stands still: its oldest slot stays that, and the current one, too.
        ring.lock(session, storage);
        let Some(slot) = ring.oldest(session, storage) else { return Done::nothing(Outcome::Noop(None)) };
        number.set(Some(slot.number));
        acting.check(&slot);
        if !slot.lock(session) {
            return Done::nothing(Outcome::Noop(None));
        }
        match slot.look(session) {
            Found::Empty => return nothing(number),
            Found::Active(reason) => return Done::nothing(Outcome::SkippedActive(reason)),
            Found::CountsOnly => {
                slot.drop_counts(session);
                return Done { outcome: Outcome::Noop(None), rows: None, changed: true };
            }
            Found::Prunable => {}
        }
        // 3. Nobody writes to the slot any more, and what its last writers did is seen.
        slot.lock_partitions(session);
        if let Some(reason) = slot.gate(session) {
            return Done::nothing(Outcome::SkippedActive(reason));
        }
        // 4.
        let carried = slot.empty(session, floor()).unwrap_or_else(|error| report::raise(error));
        Done { outcome: Outcome::Pruned, rows: Some(carried), changed: true }
    })
}

/// Of no slot in particular, so that a ring that turns while nothing happens is one record.
fn nothing(number: &Cell<Option<i32>>) -> Done {
    number.set(None);
    Done::nothing(Outcome::Noop(None))
}

/// Runs `work` with short waits for locks, and with no rows hidden: what row security would hide is an error, since a TRUNCATE does not ask
/// for it.
pub fn carefully<T>(work: impl FnOnce() -> T) -> T {
    server::with_setting(c"row_security", c"off", || subtransaction::within(PATIENCE, work))
}

/// Failed rows that finished at this time or later stay.
fn floor() -> i64 {
    let micros = |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    let now = server::transaction_clock().saturating_add(micros(settings::clock_offset()));
    settings::failed_retention().map_or(NEVER, |retention| now.saturating_sub(micros(retention)))
}
