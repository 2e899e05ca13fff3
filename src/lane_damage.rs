//! Sequences that are behind what they handed out: those of lanes, and the one of job ids. Found, listed, and moved forward, never back.
#![allow(unsafe_code)]

use crate::authority::{self, Touched};
use crate::lane_cursors::{self, LaneCursors};
use crate::results::ResultRows;
use crate::spi::{Rows, Session, View, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Mode, Storage};
use crate::{lanes, sequence, server};
use awa_ingest_core::error::{self, Error, Result};
use awa_ingest_core::lanes::Lane;
use pgrx::IntoDatum;
use pgrx::pg_sys::{self, Oid};

/// A sequence that is behind.
pub struct Damaged {
    /// Its name, in the storage's schema.
    pub name: String,
    oid: Oid,
    next: i64,
    /// The first value that was never handed out.
    used: i64,
    /// The lane, or nothing for job ids.
    lane: Option<String>,
}

impl Damaged {
    /// What is wrong.
    pub fn detail(&self) -> String {
        let Self { next, used, .. } = self;
        match &self.lane {
            Some(lane) => format!("{lane}: the next position is {next}, and positions below {used} were handed out"),
            None => format!("the next id of a job is {next}, and ids below {used} were handed out"),
        }
    }
}

/// What a lane's positions are before, as far as the caller may look: the end of its segments, and the claim cursor. `name` is that of its
/// enqueue sequence, and the lane is locked.
pub fn used(session: &Session, storage: &Storage, lane: &Lane, name: &str) -> i64 {
    let claims = name.strip_prefix("queue_enqueue_seq_").and_then(|hash| storage.relation(&format!("queue_claim_seq_{hash}")));
    let claimed = claims.and_then(sequence::position).unwrap_or(1);
    if !storage.relation("ready_segments").is_some_and(server::may_select) {
        return claimed;
    }
    let lane = [argument(vec![&*lane.queue]), argument(vec![lane.priority]), argument(vec![lane.shard])];
    let end: Option<i64> = session.query(Statement::LaneEnds, &storage.target, &lane, View::Latest, |rows| rows.get(0, 1));
    end.unwrap_or(1).max(claimed)
}

/// What is wrong with the storage's sequences, in one sentence; nothing where the caller may not look.
pub fn summary(session: &Session, storage: &Storage) -> Option<String> {
    let heads = ["queue_enqueue_heads", "queue_claim_heads", "ready_segments"];
    let may_look =
        storage.engine == Engine::Canonical || heads.iter().all(|table| storage.relation(table).is_some_and(server::may_select));
    let found = if may_look { find(session, storage, |_| true) } else { Vec::new() };
    let first = found.first()?;
    Some(match found.len() {
        1 => format!("sequence \"{}\" hands out again what was handed out: {}", first.name, first.detail()),
        count => format!("{count} sequences hand out again what was handed out, \"{}\" among them: {}", first.name, first.detail()),
    })
}

/// All sequences that are behind, of lanes for which `wanted` holds; and that of job ids, where the caller may look.
pub fn find(session: &Session, storage: &Storage, wanted: impl Fn(&LaneCursors) -> bool) -> Vec<Damaged> {
    let mut found = Vec::new();
    if storage.engine == Engine::QueueStorage {
        let lanes: Vec<_> = lane_cursors::all(session, storage).into_iter().filter(wanted).collect();
        found.extend(behind(session, storage, &lanes));
    }
    found.extend(ids_behind(session, storage));
    found
}

/// The enqueue sequence is read last: what is handed out meanwhile does not make it look as if it were behind.
fn behind(session: &Session, storage: &Storage, lanes: &[LaneCursors]) -> Vec<Damaged> {
    let claimed: Vec<Option<i64>> = lanes.iter().map(|lane| lane.claim.next()).collect();
    let ends = ends(session, storage, lanes);
    let damaged = |(lane, (end, claimed)): (&LaneCursors, (Option<i64>, Option<i64>))| {
        let (next, used) = (lane.enqueue.next()?, end.unwrap_or(1).max(claimed.unwrap_or(1)));
        let name = || format!("queue \"{}\", priority {}, shard {}", lane.queue, lane.priority, lane.shard);
        (next < used).then(|| Damaged { name: lane.enqueue.name.clone(), oid: lane.enqueue.oid, next, used, lane: Some(name()) })
    };
    lanes.iter().zip(ends.into_iter().zip(claimed)).filter_map(damaged).collect()
}

fn ends(session: &Session, storage: &Storage, lanes: &[LaneCursors]) -> Vec<Option<i64>> {
    let read = |rows: &Rows| rows.map(|row| rows.get(row, 1)).collect();
    session.query(Statement::LaneEnds, &storage.target, &lane_cursors::arrays(lanes.iter()), View::Latest, read)
}

fn ids_behind(session: &Session, storage: &Storage) -> Option<Damaged> {
    let oid = storage.ids().ok()?;
    if !tables_of_ids(storage).iter().all(|table| storage.relation(table).is_some_and(server::may_select)) {
        return None;
    }
    let last: Option<i64> = session.query(last_id(storage), &storage.target, &[], View::Latest, Rows::first);
    let next = sequence::position(oid)?;
    let used = last?.checked_add(1)?;
    (next < used).then(|| Damaged { name: ids_name(storage).into(), oid, next, used, lane: None })
}

fn last_id(storage: &Storage) -> Statement {
    match (storage.engine, storage.mode) {
        (Engine::Canonical, _) => Statement::LastIdCanonical,
        (Engine::QueueStorage, Mode::Attached) => Statement::LastIdAwa,
        (Engine::QueueStorage, Mode::Embedded) => Statement::LastIdEmbedded,
    }
}

/// What a look at all sequences reads.
pub fn touched(storage: &Storage) -> Touched {
    match (storage.engine, storage.mode) {
        (Engine::Canonical, _) => Touched::tables(&["jobs_hot", "scheduled_jobs"]),
        (Engine::QueueStorage, Mode::Attached) => Touched::tables(&[
            "queue_enqueue_heads",
            "queue_claim_heads",
            "ready_segments",
            "ready_entries",
            "deferred_jobs",
            "leases",
            "lease_claims",
            "lease_claim_closures",
            "done_entries",
            "dlq_entries",
        ]),
        (Engine::QueueStorage, Mode::Embedded) => {
            Touched::tables(&["queue_enqueue_heads", "queue_claim_heads", "ready_segments", "ready_entries", "deferred_jobs"])
        }
    }
}

/// The tables that the statement reads.
fn tables_of_ids(storage: &Storage) -> &'static [&'static str] {
    match (storage.engine, storage.mode) {
        (Engine::Canonical, _) => &["jobs_hot", "scheduled_jobs"],
        (Engine::QueueStorage, Mode::Attached) => {
            &["ready_entries", "deferred_jobs", "leases", "lease_claims", "lease_claim_closures", "done_entries", "dlq_entries"]
        }
        (Engine::QueueStorage, Mode::Embedded) => &["ready_entries", "deferred_jobs"],
    }
}

/// The name of the sequence of job ids.
pub fn ids_name(storage: &Storage) -> &'static str {
    match storage.engine {
        Engine::QueueStorage => "job_id_seq",
        Engine::Canonical => "jobs_id_seq",
    }
}

/// Appends rows of `awa_ingest.lane_sequence_problems`.
pub fn list(session: &Session, storage: &Storage, rows: &mut ResultRows) {
    let may_read = |lane: &LaneCursors| [&lane.claim, &lane.enqueue].iter().all(|part| sequence::may_read(part.oid));
    for damaged in find(session, storage, may_read) {
        let sequence = error::Sequence { schema: storage.schema.to_string(), name: damaged.name.clone() };
        let able: Vec<String> = session.query(
            Statement::WhoMayRepair,
            &storage.target,
            &[argument(damaged.oid), argument(storage.schema_oid)],
            View::Latest,
            |rows| rows.map(|row| rows.get(row, 0).unwrap_or_default()).collect(),
        );
        rows.put([
            sequence.schema.as_str().into_datum(),
            damaged.name.as_str().into_datum(),
            "behind".into_datum(),
            damaged.detail().into_datum(),
            able.into_datum(),
            vec![sequence.repair()].into_datum(),
        ]);
    }
}

/// Moves a sequence of the storage forward, if it is behind. Returns whether it was. To be run with a short lock_timeout.
///
/// A lane's lock keeps its producers out. Job ids have none: whoever has drawn some in an open transaction is waited for, as ALTER SEQUENCE
/// would, so that all rows are seen.
pub fn repair(session: &Session, storage: &Storage, name: &str) -> Result<bool> {
    let oid = storage.relation(name).ok_or_else(|| Error::InvalidArgument(format!("there is no sequence \"{name}\"")))?;
    if !server::may(oid, pg_sys::ACL_UPDATE) {
        return Err(Error::NotOwnerOfSequence(name.to_owned()));
    }
    if name == ids_name(storage) {
        // SAFETY: the lock manager takes any oid; the lock goes with the transaction.
        unsafe { pg_sys::LockRelationOid(oid, pg_sys::ShareRowExclusiveLock as pg_sys::LOCKMODE) };
    } else {
        lanes::lock(&lanes::lock_name(storage, name));
    }
    let damaged = authority::read(storage, touched(storage), || of_sequence(session, storage, name))?;
    if let Some(damaged) = &damaged {
        sequence::set(damaged.oid, damaged.used - 1);
    }
    Ok(damaged.is_some())
}

/// What is wrong with one sequence.
pub fn of_sequence(session: &Session, storage: &Storage, name: &str) -> Option<Damaged> {
    if name == ids_name(storage) {
        return ids_behind(session, storage);
    }
    let lanes: Vec<_> = lane_cursors::all(session, storage).into_iter().filter(|lane| lane.enqueue.name == name).collect();
    behind(session, storage, &lanes).pop()
}
