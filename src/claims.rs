//! Takes unique keys: one statement for the batch, in key order, before any lane.

use crate::server;
use crate::spi::{self, Cursor, Rows, Session, View, argument};
use crate::statements::Statement;
use crate::storage::Storage;
use awa_ingest_core::error::{Error, Result};
use awa_ingest_core::job::Job;

/// Rounds in a row that may take no key although one is held by nobody: by then it is no coincidence.
const PATIENCE: usize = 10;

/// Takes the keys of the spooled jobs, `wanted` of them. Returns how many it could not get, because a job in the storage or an
/// earlier one in the request holds them.
pub fn take(session: &Session, storage: &Storage, wanted: u64) -> Result<u64> {
    let (mut taken, mut idle) = (0, 0);
    while idle < PATIENCE {
        // Waits for transactions that hold a key and are still open, and takes the key if they roll back.
        let now = session.run(Statement::Claim, &storage.target, &[]);
        taken += now;
        if taken == wanted || !is_any_unheld(session, storage) {
            return Ok(wanted - taken);
        }
        idle = if now == 0 { idle + 1 } else { 0 };
        pgrx::check_for_interrupts!();
    }
    Err(Error::ClaimsHidden)
}

/// Whether a holder let go of its key while we were refused: then the key is ours to take.
fn is_any_unheld(session: &Session, storage: &Storage) -> bool {
    session.query(Statement::Unheld, &storage.target, &[], View::Write, Rows::first) == Some(true)
}

/// Takes the key of one job, which claims. Returns who has it, if the job does not get it.
pub fn take_one(storage: &Storage, job: &Job<'_>, job_id: i64) -> Result<Option<i64>> {
    let key = job.unique.as_ref().map(|unique| &*unique.key);
    spi::connect(|session| {
        for _ in 0..PATIENCE {
            // Waits, as `take` does.
            if session.run(Statement::ClaimOne, &storage.target, &[key.and_then(argument), argument(job_id)]) == 1 {
                return Ok(None);
            }
            let holder = session.query(Statement::Holder, &storage.target, &[key.and_then(argument)], View::Write, Rows::first);
            if holder.is_some() {
                return Ok(holder);
            }
            pgrx::check_for_interrupts!();
        }
        Err(Error::ClaimsHidden)
    })
}

/// The error for the first job that did not get its key.
pub fn conflict(session: &Session, storage: &Storage) -> Error {
    let first = |rows: &Rows| Error::UniqueConflict {
        ordinal: rows.get::<i64>(0, 0).unwrap_or_default() as u64,
        holder: rows.get(0, 1),
        twin: rows.get(0, 3),
        key: rows.get::<Vec<u8>>(0, 2).map(hex::encode).unwrap_or_default(),
    };
    session.query(Statement::FirstLoser, &storage.target, &[server::transaction()], View::Write, first)
}

/// A job that did not get its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loser {
    /// Its place in the request.
    pub ord: i64,
    /// The job that holds the key; `None` if it let go in the meantime.
    pub holder: Option<i64>,
}

/// The jobs that did not get their keys, in input order.
pub struct Losers {
    cursor: Option<Cursor>,
    piece: std::vec::IntoIter<Loser>,
}

impl Losers {
    /// Starts from the first, in the subtransaction that claimed.
    pub fn open(session: &Session, storage: &Storage) -> Self {
        Self {
            cursor: Some(session.open(Statement::Losers, &storage.target, &[server::transaction()])),
            piece: Vec::new().into_iter(),
        }
    }

    /// Ends the reading, whether or not all were asked for.
    pub fn close(self) {
        if let Some(cursor) = self.cursor {
            cursor.close();
        }
    }

    /// The next one, if it is the job at `ord`. To be asked in input order.
    pub fn take_if(&mut self, ord: i64) -> Option<Loser> {
        if self.piece.as_slice().is_empty() {
            self.refill();
        }
        match self.piece.as_slice().first() {
            Some(loser) if loser.ord == ord => self.piece.next(),
            _ => None,
        }
    }

    fn refill(&mut self) {
        let Some(mut cursor) = self.cursor.take() else { return };
        let losers = |rows: &Rows| -> Vec<Loser> {
            rows.map(|row| Loser { ord: rows.get(row, 0).unwrap_or_default(), holder: rows.get(row, 1) }).collect()
        };
        self.piece = cursor.fetch(losers).into_iter();
        if self.piece.as_slice().is_empty() {
            cursor.close();
        } else {
            self.cursor = Some(cursor);
        }
    }
}
