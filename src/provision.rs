//! `awa_ingest.provision_lane`: creates a lane with the rights of the storage's owner, so that its sequences belong to the
//! storage and not to whichever producer came first.

use crate::authority::{self, act_as};
use crate::entry::Call;
use crate::lane_sequences::refuse_lost;
use crate::lanes::lock;
use crate::leftover_locks;
use crate::ownership;
use crate::spi::{self, Argument, Rows, Session, View, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Storage};
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{Datum, Oid};
use std::cell::RefCell;
use std::rc::Rc;

/// Shards are at most 64.
const LAST_SHARD: i16 = 63;

/// Creates what is missing of a lane: its rows, its two sequences, and the sequences' privileges. Any queue name and priority;
/// raises 22023 for NULL and for a shard outside 0 to 63, and 55000 for a lane in use that has lost a sequence, or where the name of a
/// missing one is taken by another role. Callable by whoever may enqueue.
pub fn provision_lane(call: &Call) -> Result<Option<Datum>> {
    let missing = || Error::InvalidArgument("queue, priority and shard must not be NULL".into());
    let queue = call.text(0)?.ok_or_else(missing)?;
    let priority = call.smallint(1).ok_or_else(missing)?;
    let shard = call.smallint(2).ok_or_else(missing)?;
    if !(0..=LAST_SHARD).contains(&shard) {
        return Err(Error::InvalidArgument(format!("shard must be between 0 and {LAST_SHARD}, and is {shard}")));
    }
    spi::connect(|session| {
        let storage = authority::resolve(session, View::Caller)?;
        if storage.engine == Engine::Canonical {
            return Err(Error::NoLanes);
        }
        let owner = authority::of_storage(&storage, authority::LANE)?;
        act_as(owner, || {
            if create(session, &storage, queue, priority, shard)? {
                check_sequences(session, &storage, &lane_arguments(&storage, queue, priority, shard), owner)?;
            }
            Ok(None)
        })
    })
}

/// Creates a lane for a writer. Callers of awa's own function need not know this extension: theirs is created with their own rights, as awa's
/// function does it.
pub fn for_writer(session: &Session, storage: &Storage, queue: &str, priority: i16, shard: i16) -> Result<()> {
    let may_provision = session.query(Statement::MayProvision, &storage.target, &[], View::Latest, Rows::first);
    match may_provision {
        Some(true) => {
            session.run(Statement::Provision, &storage.target, &[argument(queue), argument(priority), argument(shard)]);
            Ok(())
        }
        _ => create(session, storage, queue, priority, shard).map(|_| ()),
    }
}

/// Refuses a new lane with a sequence of another role (55000). Roles that can create in the schema could take the name before, and set
/// positions and claim cursor as they like.
fn check_sequences(session: &Session, storage: &Storage, lane: &[Argument; 4], owner: Oid) -> Result<()> {
    let parts = |rows: &Rows| [rows.get::<i64>(0, 1), rows.get::<i64>(0, 2)];
    let sequences = session.query(Statement::LaneParts, &storage.target, lane, View::Latest, parts);
    sequences.into_iter().flatten().try_for_each(|sequence| ownership::check(Oid::from(sequence as u32), owner))
}

fn lane_arguments(storage: &Storage, queue: &str, priority: i16, shard: i16) -> [Argument; 4] {
    [argument(queue), argument(priority), argument(shard), argument(&*storage.schema)]
}

/// Schema, queue, priority and shard.
type Lane = (Rc<str>, String, i16, i16);

thread_local! {
    /// Lanes that this session is making.
    static MAKING: RefCell<Vec<Lane>> = const { RefCell::new(Vec::new()) };
}

/// More lanes than triggers can sensibly have this session make within one another.
const DEEPEST: usize = 16;

/// Making a lane runs triggers and DDL, and with it event triggers: those may enqueue by themselves. A lane that is being made cannot be
/// made within that, nor can lanes without end. Returns whether something was missing.
fn create(session: &Session, storage: &Storage, queue: &str, priority: i16, shard: i16) -> Result<bool> {
    struct Made;
    impl Drop for Made {
        fn drop(&mut self) {
            MAKING.with_borrow_mut(Vec::pop);
        }
    }
    let lane = (storage.schema.clone(), queue.to_owned(), priority, shard);
    if MAKING.with_borrow(|making| making.len() >= DEEPEST || making.contains(&lane)) {
        return Err(Error::LaneInTheMaking(format!("(queue \"{queue}\", priority {priority}, shard {shard})")));
    }
    MAKING.with_borrow_mut(|making| making.push(lane));
    let _made = Made;
    make(session, storage, queue, priority, shard)
}

fn make(session: &Session, storage: &Storage, queue: &str, priority: i16, shard: i16) -> Result<bool> {
    let lane = lane_arguments(storage, queue, priority, shard);
    let run = |statement, arguments: usize| session.run(statement, &storage.target, &lane[..arguments]);
    let holds = |statement, arguments: usize| {
        session.query(statement, &storage.target, &lane[..arguments], View::Latest, Rows::first) == Some(true)
    };
    let has_row = || holds(Statement::LaneRowExists, 2);
    let exists = || holds(Statement::LaneExists, 4);

    // Shards share a row: who creates it first must not be waited for with a shard's own lock in hand.
    if !has_row() {
        lock(&format!("{}:{queue}:{priority}", storage.schema));
    }
    // The lock that awa's own producers take: CREATE SEQUENCE IF NOT EXISTS races.
    lock(&format!("{}:{queue}:{priority}:{shard}", storage.schema));

    // awa's head tables have a trigger that locks the lane before it looks for a conflict, and makes the sequence: propose heads
    // only for a lane that is missing, and make sequences only where no trigger did.
    let is_missing = !exists();
    if is_missing {
        refuse_lost(session, storage, &lane, &format!("(queue \"{queue}\", priority {priority}, shard {shard})"))?;
        if !has_row() {
            run(Statement::LaneRow, 2);
        }
        leftover_locks::releasing(storage, queue, priority, shard, || {
            run(Statement::LaneEnqueueHead, 3);
            run(Statement::LaneClaimHead, 3);
            if !exists() {
                run(Statement::LaneSequences, 3);
            }
        });
    }
    let list = |rows: &Rows| rows.map(|row| rows.get(row, 0).unwrap_or_default()).collect::<Vec<String>>();
    let grants = session.query(Statement::LaneGrants, &storage.target, &lane, View::Latest, list);
    grants.iter().for_each(|grant| session.run_once(grant));
    Ok(is_missing)
}
