//! Lanes that the transaction holds: their positions are its own until it ends, and so is the ring slot that it found behind their locks.
//! Later calls go on where the first one began: a lane's ranges stay in the order of their slots, as long as nothing else of the same
//! transaction took positions of it in between. That shows, and the ring is read anew.

use crate::changes::Moment;
use crate::lanes;
use crate::ring::{self, Position};
use crate::sequence;
use crate::spi;
use crate::storage::Storage;
use awa_ingest_core::error::Result;
use awa_ingest_core::lanes::Lane;
use pgrx::pg_sys::Oid;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// A lane that is locked.
pub struct Held {
    sequence: Oid,
    /// The last position taken; 0 before the first, which no lane has.
    last: Cell<i64>,
    /// Where its ready rows go.
    pub position: Position,
    /// Whether the partitions took a row of it.
    pub fits: Cell<bool>,
}

/// A position that was taken.
pub struct Taken {
    /// Its lane.
    pub held: Rc<Held>,
    /// The position.
    pub position: i64,
    /// For how long the lane's lock was waited for; `None` where it was held already.
    pub waited: Option<Duration>,
}

/// Schema, priority, shard and queue.
type Key = (Oid, i16, i16, String);

/// The lanes held, and since when nothing has happened that would have let go of them.
type Lanes = (Option<Moment>, HashMap<Key, Rc<Held>>);

thread_local! {
    static HELD: RefCell<Lanes> = RefCell::default();
}

impl Held {
    /// Locks the lane until the transaction ends, if that is not done, and takes its next position.
    pub fn take(storage: &Storage, lane: &Lane) -> Result<Taken> {
        let key = (storage.schema_oid, lane.priority, lane.shard, lane.queue.to_string());
        let now = Moment::now();
        let known = HELD.with_borrow_mut(|(moment, lanes)| {
            if *moment != Some(now) {
                lanes.clear();
                *moment = Some(now);
            }
            lanes.get(&key).cloned()
        });
        let (sequence, waited) = match &known {
            Some(held) => (held.sequence, None),
            None => {
                let (sequence, waited) = spi::connect(|session| lanes::hold(session, storage, lane))?;
                (sequence, Some(waited))
            }
        };
        let next = sequence::position(sequence);
        let held = match known.filter(|held| next == Some(held.last.get() + 1)) {
            Some(held) => held,
            None => {
                let ring = spi::connect(|session| ring::current(session, storage))?;
                let held = Rc::new(Self { sequence, last: Cell::new(0), position: ring, fits: Cell::new(false) });
                // Where a lane was made, the catalogs have changed, and the next call looks once more.
                HELD.with_borrow_mut(|(_, lanes)| lanes.insert(key, Rc::clone(&held)));
                held
            }
        };
        // Behind the last lock that is waited for: a position is not given back.
        let position = lanes::take_from(sequence, next, 1);
        held.last.set(position);
        Ok(Taken { held, position, waited })
    }
}
