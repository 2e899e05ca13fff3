//! What calls with the same snapshot need not look up again: the storage, and its queues. A client may call once a job, hundreds of times in a
//! statement.
#![allow(unsafe_code)]

use crate::catalog::QueueCatalog;
use crate::changes::Moment;
use crate::settings;
use crate::spi::{self, View};
use crate::storage::{Storage, Version};
use awa_ingest_core::error::Result;
use awa_ingest_core::route::{Catalog, StoredQueue};
use pgrx::pg_sys::{self, TransactionId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The storage as a snapshot shows it.
pub struct Seen {
    moment: Moment,
    snapshot: Snapshot,
    stripe_count: Option<i32>,
    /// The storage.
    pub storage: Storage,
    queues: RefCell<HashMap<String, Rc<[StoredQueue]>>>,
}

/// What a snapshot sees: two that are equal see the same rows.
#[derive(PartialEq, Eq)]
struct Snapshot {
    xmin: TransactionId,
    xmax: TransactionId,
    command: pg_sys::CommandId,
    running: Vec<TransactionId>,
    running_below: Vec<TransactionId>,
}

thread_local! {
    static LAST: RefCell<Option<Rc<Seen>>> = const { RefCell::new(None) };
}

impl Seen {
    /// The storage in the caller's snapshot.
    pub fn now() -> Result<Rc<Self>> {
        let (moment, stripe_count) = (Moment::now(), settings::queue_stripe_count());
        let snapshot = Snapshot::active();
        let is_same = |seen: &&Rc<Self>| (seen.moment, seen.stripe_count) == (moment, stripe_count) && seen.snapshot == snapshot;
        if let Some(seen) = LAST.with_borrow(|last| last.as_ref().filter(is_same).cloned()) {
            return Ok(seen);
        }
        let storage = spi::connect(|session| Storage::resolve(session, View::Caller, Version::IfReadable))?;
        let seen = Rc::new(Self { moment, snapshot, stripe_count, storage, queues: RefCell::default() });
        LAST.set(Some(Rc::clone(&seen)));
        Ok(seen)
    }

    /// The stored queues behind a queue.
    pub fn stored_queues(&self, queue: &str) -> Result<Rc<[StoredQueue]>> {
        if let Some(known) = self.queues.borrow().get(queue) {
            return Ok(Rc::clone(known));
        }
        let stored: Rc<[StoredQueue]> = QueueCatalog { storage: &self.storage }.stored_queues(queue)?.into();
        self.queues.borrow_mut().insert(queue.to_owned(), Rc::clone(&stored));
        Ok(stored)
    }
}

impl Snapshot {
    fn active() -> Self {
        // SAFETY: a function that reads and writes is called with a snapshot; its arrays have the lengths that it says.
        unsafe {
            let snapshot = &*pg_sys::GetActiveSnapshot();
            let list = |first: *mut TransactionId, count: usize| match count {
                0 => Vec::new(),
                count => std::slice::from_raw_parts(first, count).to_vec(),
            };
            Self {
                xmin: snapshot.xmin,
                xmax: snapshot.xmax,
                command: snapshot.curcid,
                running: list(snapshot.xip, snapshot.xcnt as usize),
                running_below: list(snapshot.subxip, usize::try_from(snapshot.subxcnt).unwrap_or(0)),
            }
        }
    }
}
