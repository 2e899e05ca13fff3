//! The three rings, and what their prunes differ in.

use crate::authority::{self, Touched};
use crate::spi::{Argument, Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::Storage;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::TEXTOID;

/// A ring of partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ring {
    /// Jobs and what became of them.
    Queue,
    /// Jobs that are being run.
    Lease,
    /// Claims and their ends.
    Claim,
}

/// What keeps a slot.
const REASONS: [&str; 4] = ["leases", "pending", "unclosed_claims", "open_claims"];

/// A slot of a ring.
pub struct Slot {
    /// The slot.
    pub number: i32,
    /// Its generation.
    pub generation: i64,
    /// Its partitions.
    target: Target,
    ring: Ring,
}

/// What is found in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing.
    Empty,
    /// No rows, but counts of rows that are gone.
    CountsOnly,
    /// Rows that are still needed.
    Active(&'static str),
    /// Rows that are done with.
    Prunable,
}

impl Ring {
    /// All of them, in the order in which they are pruned.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Lease, Self::Claim];

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Lease => "lease",
            Self::Claim => "claim",
        }
    }

    /// The statements' target.
    pub fn target(self, storage: &Storage) -> Target {
        Target { ring: self.name(), ..storage.target.clone() }
    }

    /// The oldest slot that was in use and is not the current one.
    pub fn oldest(self, session: &Session, storage: &Storage) -> Option<Slot> {
        let statement = if self == Self::Queue { Statement::QueueOldest } else { Statement::RingOldest };
        let read = |rows: &Rows| Some((rows.get(0, 0)?, rows.get(0, 1)?));
        let (number, generation) = session.query(statement, &self.target(storage), &[], View::Write, read)?;
        Some(self.slot(storage, number, generation))
    }

    /// A slot by its number.
    pub fn slot(self, storage: &Storage, number: i32, generation: i64) -> Slot {
        Slot { number, generation, target: Target { slot: Some(number), ..self.target(storage) }, ring: self }
    }

    /// The tables that have a partition a slot.
    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Queue => &[
                "ready_entries",
                "ready_claim_attempt_batches",
                "done_entries",
                "ready_tombstones",
                "ready_segments",
                "receipt_completion_batches",
                "receipt_completion_tombstones",
                "queue_terminal_count_deltas",
            ],
            Self::Lease => &["leases"],
            Self::Claim => &["lease_claims", "lease_claim_batches", "lease_claim_closures", "lease_claim_closure_batches"],
        }
    }

    /// What says which slot is the oldest.
    pub fn cursor(self) -> Touched {
        Touched::tables(match self {
            Self::Queue => &["queue_ring_state", "queue_ring_slots"],
            Self::Lease => &["lease_ring_state", "lease_ring_slots"],
            Self::Claim => &["claim_ring_state", "claim_ring_slots"],
        })
    }

    /// What a look or a prune touches.
    pub fn touched(self) -> Touched {
        match self {
            Self::Queue => QUEUE,
            Self::Lease => Touched::tables(&["lease_ring_state", "lease_ring_slots", "leases"]),
            Self::Claim => CLAIM,
        }
    }

    /// Keeps the ring from turning until the transaction ends.
    pub fn lock(self, session: &Session, storage: &Storage) {
        session.run(Statement::LockRing, &self.target(storage), &[]);
    }

    fn rows(self) -> Statement {
        match self {
            Self::Queue => Statement::QueueRows,
            Self::Lease => Statement::LeaseRows,
            Self::Claim => Statement::ClaimRows,
        }
    }
}

const QUEUE: Touched = Touched {
    tables: &[
        "queue_ring_state",
        "queue_ring_slots",
        "queue_claim_heads",
        "ready_entries",
        "ready_claim_attempt_batches",
        "ready_tombstones",
        "ready_segments",
        "receipt_completion_batches",
        "receipt_completion_tombstones",
        "leases",
        "lease_claims",
        "lease_claim_batches",
        "lease_claim_closures",
        "lease_claim_closure_batches",
    ],
    written: &["done_entries", "queue_terminal_count_deltas", "queue_terminal_live_counts", "queue_terminal_rollups"],
    functions: &[("sequence_next_value", &[TEXTOID])],
};

const CLAIM: Touched = Touched::tables(&[
    "claim_ring_state",
    "claim_ring_slots",
    "lease_claims",
    "lease_claim_batches",
    "lease_claim_closures",
    "lease_claim_closure_batches",
]);

impl Slot {
    /// Number and generation, for statements.
    pub fn reference(&self) -> [Argument; 2] {
        [argument(self.number), argument(self.generation)]
    }

    /// Its partitions, for statements.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Raises 55000 unless its partitions are there and belong to the ring's owner. Nobody can replace them until the transaction ends.
    pub fn settle(&self, storage: &Storage) -> Result<()> {
        let partitions = self.ring.tables().iter().map(|table| format!("{table}_{}", self.number));
        let state = format!("{}_ring_state", self.ring.name());
        authority::of_tables(storage, &partitions.chain([state]).collect::<Vec<_>>()).map(|_| ())
    }

    /// Keeps others from the slot. Whether there is such a slot.
    pub fn lock(&self, session: &Session) -> bool {
        session.run(Statement::LockSlot, &self.target, &[argument(self.number)]) > 0
    }

    /// Keeps everybody from the slot's partitions.
    pub fn lock_partitions(&self, session: &Session) {
        let statement = match self.ring {
            Ring::Queue => Statement::QueueLock,
            Ring::Lease => Statement::LeaseLock,
            Ring::Claim => Statement::ClaimLock,
        };
        session.run(statement, &self.target, &[]);
    }

    /// Looks whether it can be pruned.
    pub fn look(&self, session: &Session) -> Found {
        let holds =
            |statement, arguments: &[_]| session.query(statement, &self.target, arguments, View::Write, Rows::first) == Some(true);
        if holds(self.ring.rows(), &[]) {
            return self.gate(session).map_or(Found::Prunable, Found::Active);
        }
        let counts = self.ring == Ring::Queue && holds(Statement::HasLiveCounts, &[argument(self.number)]);
        if counts { Found::CountsOnly } else { Found::Empty }
    }

    /// Why it must stay, if it must.
    pub fn gate(&self, session: &Session) -> Option<&'static str> {
        let number = [argument(self.number)];
        let (statement, arguments): (_, &[_]) = match self.ring {
            Ring::Queue => (Statement::QueueGates, &number),
            Ring::Lease => (Statement::LeaseGates, &[]),
            Ring::Claim => (Statement::ClaimGates, &[]),
        };
        let reason: Option<String> = session.query(statement, &self.target, arguments, View::Write, Rows::first);
        reason.map(|reason| REASONS.into_iter().find(|known| *known == reason).unwrap_or("unknown"))
    }

    /// Empties it. Failed rows that finished at `floor`, a `timestamptz`, or later go into the ring's current slot; returns how many.
    pub fn empty(&self, session: &Session, floor: i64) -> Result<i64> {
        let run = |statement, arguments: &[_]| session.run(statement, &self.target, arguments);
        let floor = [Some(pgrx::pg_sys::Datum::from(floor))];
        match self.ring {
            Ring::Queue => {
                let carried = self.carry(session, &floor)?;
                if carried > 0 {
                    run(Statement::QueueCarryCounts, &floor);
                }
                run(Statement::QueueFold, &floor);
                run(Statement::QueueTruncate, &[]);
                self.drop_counts(session);
                return Ok(carried);
            }
            Ring::Lease => run(Statement::LeaseTruncate, &[]),
            Ring::Claim => {
                run(Statement::ClaimTruncate, &[]);
                run(Statement::ClaimCursors, &[argument(self.number)])
            }
        };
        Ok(0)
    }

    /// Carries failed rows on. A trigger that leaves out one would lose it.
    fn carry(&self, session: &Session, floor: &[Argument]) -> Result<i64> {
        let read = |rows: &Rows| (rows.get(0, 0).unwrap_or(0), rows.get(0, 1).unwrap_or(0));
        let (wanted, carried): (i64, i64) = session.query(Statement::QueueCarry, &self.target, floor, View::Write, read);
        match wanted - carried {
            0 => Ok(carried),
            lost => Err(Error::RowsLeftOut("done_entries".into(), lost.unsigned_abs())),
        }
    }

    /// Drops the live counts of its rows, which are gone.
    pub fn drop_counts(&self, session: &Session) {
        session.run(Statement::DropLiveCounts, &self.target, &[argument(self.number)]);
    }
}
