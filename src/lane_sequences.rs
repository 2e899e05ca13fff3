//! Lane sequences that one role can use and another cannot, and those that are behind: found, and repaired.

use crate::authority::{self, Touched};
use crate::entry::Call;
use crate::lane_damage;
use crate::positions;
use crate::sequence;
use crate::server;
use crate::spi::{self, Argument, Rows, Session, View, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Mode, Storage};
use crate::subtransaction::{self, attempt};
use awa_ingest_core::error::{Error, Result};
use pgrx::IntoDatum;
use pgrx::pg_sys::{Datum, Oid};

/// How long a repair waits for whoever uses the sequence, in milliseconds. Producers of that lane wait behind it meanwhile.
const PATIENCE: i32 = 300;

/// What is read of the storage.
const HEADS: Touched = Touched::tables(&["queue_enqueue_heads", "queue_claim_heads", "ready_segments"]);

/// `awa_ingest.lane_sequence_problems`: one row for a sequence that something is wrong with. Needs SELECT on the head tables and
/// ready_segments; the sequence of job ids is looked at where the caller may read the tables with ids. Raises 55000 for an unknown storage.
pub fn lane_sequence_problems(call: &Call) -> Result<Option<Datum>> {
    let mut rows = call.rows();
    spi::connect(|session| {
        let storage = authority::resolve_to_read(session)?;
        if storage.engine == Engine::QueueStorage {
            positions::show(session, &storage);
            let open = || session.open(Statement::LaneSequenceProblems, &storage.target, &arguments(&storage, None));
            authority::read(&storage, HEADS, || rows.take(open()))?;
        }
        authority::read(&storage, lane_damage::touched(&storage), || lane_damage::list(session, &storage, &mut rows))?;
        Ok(None)
    })
}

/// `awa_ingest.repair_lane_sequence`: runs what [`lane_sequence_problems`] lists for one sequence. Returns `repaired`, `nothing_to_do`, or
/// `busy` if a transaction kept the sequence for longer than 300 ms or the user's lock_timeout. Needs what the statements need (42501).
/// Raises 22023 for what is no sequence of a lane or of job ids in the active storage, and 55000 where there is no safe repair.
pub fn repair_lane_sequence(call: &Call) -> Result<Option<Datum>> {
    let missing = || Error::InvalidArgument("schema_name and sequence_name must not be NULL".into());
    let schema = call.text(0)?.ok_or_else(missing)?;
    let name = call.text(1)?.ok_or_else(missing)?;
    let found = spi::connect(|session| problem(session, schema, name))?;
    let outcome = match found {
        None => "nothing_to_do",
        Some(problem) if problem.statements.is_empty() => return Err(Error::BeyondRepair(name.to_owned(), problem.detail)),
        Some(problem) => run(|| {
            spi::connect(|session| problem.statements.iter().for_each(|statement| session.run_once(statement)));
            Ok(())
        })?,
    };
    // GRANT only warns who has a privilege without the right to pass it on.
    if outcome == "repaired" && spi::connect(|session| problem(session, schema, name))?.is_some() {
        return Err(Error::NotOwnerOfSequence(name.to_owned()));
    }
    let outcome = match outcome {
        "busy" => outcome,
        _ if !spi::connect(|session| is_behind(session, name))? => outcome,
        _ => run(|| spi::connect(|session| lane_damage::repair(session, &authority::resolve_to_read(session)?, name)).map(|_| ()))?,
    };
    Ok(outcome.into_datum())
}

fn is_behind(session: &Session, name: &str) -> Result<bool> {
    let storage = authority::resolve_to_read(session)?;
    let look = || lane_damage::of_sequence(session, &storage, name).is_some();
    authority::read(&storage, lane_damage::touched(&storage), look)
}

struct Problem {
    detail: String,
    statements: Vec<String>,
}

fn problem(session: &Session, schema: &str, name: &str) -> Result<Option<Problem>> {
    let storage = authority::resolve_to_read(session)?;
    if *storage.schema == *schema && name == lane_damage::ids_name(&storage) {
        return Ok(None);
    }
    let ask = || session.query(Statement::LaneOfSequence, &storage.target, &[argument(name)], View::Latest, Rows::first);
    let is_lanes = storage.engine == Engine::QueueStorage
        && *storage.schema == *schema
        && authority::read(&storage, HEADS, ask)? == Some(true);
    if !is_lanes {
        return Err(Error::InvalidArgument(format!(
            "\"{schema}\".\"{name}\" is no sequence of a lane or of job ids in the active storage"
        )));
    }
    let arguments = arguments(&storage, Some(name));
    positions::show(session, &storage);
    let read = |rows: &Rows| {
        let detail = rows.get(0, 3)?;
        Some(Problem { detail, statements: rows.get(0, 5).unwrap_or_default() })
    };
    authority::read(&storage, HEADS, || {
        session.query(Statement::LaneSequenceProblems, &storage.target, &arguments, View::Latest, read)
    })
}

fn arguments(storage: &Storage, name: Option<&str>) -> [Argument; 3] {
    [argument(&*storage.schema), name.and_then(argument), argument(storage.mode == Mode::Embedded)]
}

fn run(work: impl FnOnce() -> Result<()>) -> Result<&'static str> {
    match attempt(|| subtransaction::within(PATIENCE, work)) {
        Ok(done) => done.map(|()| "repaired"),
        Err(failure) if failure.is_contention() => Ok("busy"),
        Err(failure) => failure.raise(),
    }
}

/// Refuses to make a lane's missing sequence anew where it would begin below positions that were handed out: workers would never come by
/// there again, or come by twice. The lane's locks are held.
pub fn refuse_lost(session: &Session, storage: &Storage, lane: &[Argument; 4], name: &str) -> Result<()> {
    let parts = |rows: &Rows| (rows.get(0, 0) == Some(true), rows.get::<i64>(0, 1), rows.get::<i64>(0, 2));
    let (has_head, enqueue, claim) = session.query(Statement::LaneParts, &storage.target, lane, View::Latest, parts);
    let is_used = |sequence: i64| sequence::position(Oid::from(sequence as u32)).is_some_and(|next| next > 1);
    let (side, lost) = match (enqueue, claim) {
        (Some(_), Some(_)) => return Ok(()),
        (None, Some(claim)) => ("enqueue", is_used(claim) || has_segments(session, storage, lane)),
        (Some(enqueue), None) => ("claim", is_used(enqueue)),
        (None, None) => ("enqueue", has_head && has_segments(session, storage, lane)),
    };
    match lost {
        true => Err(Error::LostSequence(name.to_owned(), side)),
        false => Ok(()),
    }
}

/// Whether jobs were put there; not seen by who may not look.
fn has_segments(session: &Session, storage: &Storage, lane: &[Argument; 4]) -> bool {
    let may_look = storage.relation("ready_segments").is_some_and(server::may_select);
    may_look && session.query(Statement::LaneHasSegments, &storage.target, &lane[..3], View::Latest, Rows::first) == Some(true)
}
