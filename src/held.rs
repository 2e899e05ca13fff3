//! Lanes that the transaction holds: their positions are its own until it ends, and so is the ring slot that it found behind their locks.
//! Later calls go on where the first one began: a lane's ranges stay in the order of their slots, since nobody else can take one in between.

use crate::changes::Moment;
use crate::lanes;
use crate::ring::{self, Position};
use crate::spi::{self, Session};
use crate::storage::Storage;
use awa_ingest_core::error::Result;
use awa_ingest_core::lanes::Lane;
use pgrx::pg_sys::Oid;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// A lane that is locked.
pub struct Held {
    sequence: Oid,
    /// Where its ready rows go.
    pub position: Position,
    /// Whether the partitions took a row of it.
    pub fits: Cell<bool>,
}

type Key = (Oid, i16, i16, String);

thread_local! {
    static HELD: RefCell<(Option<Moment>, HashMap<Key, Rc<Held>>)> = RefCell::default();
}

impl Held {
    /// Locks the lane until the transaction ends, if that is not done.
    pub fn lane(storage: &Storage, lane: &Lane) -> Result<Rc<Self>> {
        let key = (storage.schema_oid, lane.priority, lane.shard, lane.queue.to_string());
        let now = Moment::now();
        let known = HELD.with_borrow_mut(|(moment, lanes)| {
            if *moment != Some(now) {
                lanes.clear();
                *moment = Some(now);
            }
            lanes.get(&key).cloned()
        });
        if let Some(held) = known {
            return Ok(held);
        }
        let hold = |session: &Session| -> Result<Self> {
            let (sequence, _) = lanes::hold(session, storage, lane)?;
            Ok(Self { sequence, position: ring::current(session, storage)?, fits: Cell::new(false) })
        };
        let held = Rc::new(spi::connect(hold)?);
        // Where a lane was made, the catalogs have changed, and the next call looks once more.
        HELD.with_borrow_mut(|(_, lanes)| lanes.insert(key, Rc::clone(&held)));
        Ok(held)
    }

    /// The lane's next position.
    pub fn next(&self) -> i64 {
        lanes::take(self.sequence, 1)
    }
}
