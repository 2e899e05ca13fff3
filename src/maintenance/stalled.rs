//! Lanes that awa never works again: the claim cursor stands before a gap, and the run behind the gap is claimed already, because a worker died
//! between a claim and the cursor. awa's claim function moves the cursor only over what begins at the cursor.
//!
//! Jobs become visible in the order of a lane's positions, behind the lane's lock. So nothing between the cursor and the first job that nobody
//! has claimed can ever become a job again, once it is certain that no transaction has positions that it has not committed: that is what
//! holding the lane's lock proves, also for prepared transactions.

use super::pass::{Acting, Done};
use super::prune::carefully;
use super::run::Outcome;
use crate::authority::{self, Touched};
use crate::entry::Call;
use crate::lane_cursors::{self, LaneCursors};
use crate::lanes;
use crate::results::ResultRows;
use crate::sequence;
use crate::server;
use crate::spi::{self, Rows, Session, View, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Mode, Storage};
use crate::subtransaction;
use awa_ingest_core::error::{Error, Result};
use pgrx::IntoDatum;
use pgrx::pg_sys::Datum;

/// What is read of the storage.
pub const TOUCHED: Touched = Touched::tables(&[
    "queue_enqueue_heads",
    "queue_claim_heads",
    "ready_segments",
    "ready_entries",
    "ready_tombstones",
    "ready_claim_attempt_batches",
]);

/// Milliseconds that a pass waits for each lock of a lane; its producers hold theirs until they commit.
const PATIENCE: i32 = 100;

/// What a lane that stands needs.
struct Stall {
    lane: LaneCursors,
    cursor: i64,
    target: i64,
    /// When the first job that waits there was due.
    oldest: Option<i64>,
}

/// `awa_ingest.stalled_lane_states`: the rows of `awa_ingest.stalled_lanes`. Lanes whose sequences the caller may not read are left out.
///
/// Raises 55000 where the storage is unknown, and needs what `awa_ingest.grant_operator` grants.
pub fn stalled_lane_states(call: &Call) -> Result<Option<Datum>> {
    let mut rows = call.rows();
    spi::connect(|session| {
        let storage = authority::resolve_to_read(session)?;
        if is_claimed_from(&storage) {
            let may_read = |lane: &LaneCursors| [&lane.claim, &lane.enqueue].iter().all(|part| sequence::may_read(part.oid));
            let look = || server::with_setting(c"row_security", c"off", || find(session, &storage, may_read));
            authority::read(&storage, TOUCHED, look)??.iter().for_each(|stall| put(&mut rows, stall));
        }
        Ok(None)
    })
}

fn put(rows: &mut ResultRows, stall: &Stall) {
    let Stall { lane, cursor, target, oldest } = stall;
    rows.put([
        lane.queue.as_str().into_datum(),
        lane.priority.into_datum(),
        lane.shard.into_datum(),
        cursor.into_datum(),
        target.into_datum(),
        oldest.map(Datum::from),
    ]);
}

/// Whether workers claim jobs of the storage.
pub fn is_claimed_from(storage: &Storage) -> bool {
    storage.engine == Engine::QueueStorage && storage.mode == Mode::Attached
}

/// The lanes that stand.
pub fn lanes(session: &Session, storage: &Storage) -> Result<Vec<LaneCursors>> {
    let stalls = carefully(|| find(session, storage, |_| true))?;
    Ok(stalls.into_iter().map(|stall| stall.lane).collect())
}

/// A lane whose jobs are all claimed is not looked at further, and that is most of them.
fn find(session: &Session, storage: &Storage, wanted: impl Fn(&LaneCursors) -> bool) -> Result<Vec<Stall>> {
    check_tables(storage)?;
    let mut busy: Vec<(i64, Option<LaneCursors>)> = lane_cursors::all(session, storage)
        .into_iter()
        .filter(wanted)
        .filter_map(|lane| {
            let (cursor, next) = lane.claim.next().zip(lane.enqueue.next())?;
            (cursor < next).then_some((cursor, Some(lane)))
        })
        .collect();
    let [queues, priorities, shards] = lane_cursors::arrays(busy.iter().filter_map(|(_, lane)| lane.as_ref()));
    let cursors: Vec<i64> = busy.iter().map(|(cursor, _)| *cursor).collect();
    let arguments = [queues, priorities, shards, argument(cursors)];
    let read = |rows: &Rows| {
        let stall = |row| {
            let (cursor, lane) = busy.get_mut(rows.get::<i64>(row, 0)? as usize - 1)?;
            let target = rows.get(row, 1)?;
            Some(Stall { lane: lane.take()?, cursor: *cursor, target, oldest: rows.raw(row, 2).map(|at| at.value() as i64) })
        };
        (0..rows.count).filter_map(stall).collect()
    };
    Ok(session.query(Statement::StalledLanes, &storage.target, &arguments, View::Latest, read))
}

/// A view in the place of a table would run with the caller's rights whatever its owner wants.
fn check_tables(storage: &Storage) -> Result<()> {
    match ["ready_tombstones", "ready_claim_attempt_batches"].iter().find(|table| !storage.has_table(table)) {
        Some(table) => Err(Error::UnknownStorage(format!("table {table} is missing"))),
        None => Ok(()),
    }
}

/// Moves the claim cursor of a lane that stands as awa itself would move it. To be run in a subtransaction: a lock that is not to be had raises
/// 55P03.
pub fn heal(acting: &Acting<'_>, lane: &LaneCursors) -> Done {
    let (session, storage) = (acting.session, acting.storage);
    patiently(|| {
        // 1. Claims that are under way hold this row, and so do cursors that are being moved.
        if session.run(Statement::LockClaimHead, &storage.target, &lane.key()) == 0 {
            return Done::nothing(Outcome::Noop(None));
        }
        // 2. Nobody has positions of the lane that are not committed.
        lanes::lock(&lanes::lock_name(storage, &lane.enqueue.name));
        // 3. Nobody moves the cursor by another way.
        lanes::lock(&lanes::lock_name(storage, &lane.claim.name));
        let Some((cursor, next)) = lane.claim.next().zip(lane.enqueue.next()) else {
            return Done::nothing(Outcome::Noop(None));
        };
        // 4. What those who held the locks have committed is seen.
        let [queue, priority, shard] = lane_cursors::arrays(std::iter::once(lane));
        let arguments = [queue, priority, shard, argument(vec![cursor])];
        let target: Option<i64> =
            session.query(Statement::StalledLanes, &storage.target, &arguments, View::Latest, |rows| rows.get(0, 1));
        match target {
            // It goes on by itself, or somebody else has moved it.
            None => Done::nothing(Outcome::Noop(None)),
            Some(target) if target <= cursor => Done::nothing(Outcome::SkippedActive("no_target")),
            // Not before the lane's enqueue sequence is repaired: the cursor must stay behind it.
            Some(target) if target > next => Done::nothing(Outcome::SkippedActive("sequence_behind")),
            Some(target) => {
                sequence::set(lane.claim.oid, target - 1);
                Done { outcome: Outcome::Healed, rows: Some(target - cursor), changed: true }
            }
        }
    })
}

/// Runs `work` as a prune does, but with longer waits: a lane that stands has no claims to hold up.
fn patiently<T>(work: impl FnOnce() -> T) -> T {
    server::with_setting(c"row_security", c"off", || subtransaction::within(PATIENCE, work))
}

/// The name of the lane's claim sequence, with its schema.
pub fn name(storage: &Storage, lane: &LaneCursors) -> String {
    lanes::lock_name(storage, &lane.claim.name)
}
