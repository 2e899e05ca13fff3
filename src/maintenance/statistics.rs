//! Planner statistics of tables that autovacuum leaves alone.

use super::pass::Done;
use super::run::Outcome;
use crate::authority;
use crate::entry::Call;
use crate::server;
use crate::spi::{self, Rows, Session, View, argument};
use crate::statements::{Statement, Target};
use crate::storage::{Engine, Storage};
use crate::subtransaction;
use awa_ingest_core::error::{Error, Result};
use pgrx::IntoDatum;
use pgrx::pg_sys::{self, Datum, Oid};

/// Milliseconds that an ANALYZE waits for a lock on a partition; for the table itself it does not wait.
const PATIENCE: i32 = 100;

/// Milliseconds to wait for a look at the size of a partition that somebody holds.
const GLANCE: i32 = 1;

/// The tables whose writers may have them analyzed.
const HEADS: [&str; 2] = ["queue_enqueue_heads", "queue_claim_heads"];

/// A table to analyze.
pub struct Relation {
    oid: i64,
    /// Its name, with its schema.
    pub name: String,
}

/// The tables of a storage that are analyzed.
pub fn relations(session: &Session, storage: &Storage) -> Vec<Relation> {
    let read = |rows: &Rows| {
        (0..rows.count).filter_map(|row| Some(Relation { oid: rows.get(row, 0)?, name: rows.get(row, 1)? })).collect()
    };
    session.query(Statement::AnalyzedRelations, &storage.target, &[argument(storage.schema_oid)], View::Latest, read)
}

/// Analyzes a table by way of [`analyze_relation`]; not an empty one. The planner takes a table of which nothing is known for one with some
/// pages, because its plans are kept; of one that was analyzed it believes that it is empty.
pub fn analyze(session: &Session, relation: &Relation) -> Done {
    let oid = [argument(Oid::from(relation.oid as u32))];
    let is_empty = || session.query(Statement::IsEmpty, &Target::none(), &oid, View::Write, Rows::first);
    if subtransaction::within(GLANCE, is_empty) == Some(true) {
        return Done::nothing(Outcome::Noop(Some("empty")));
    }
    let outcome: Option<String> = session.query(Statement::AnalyzeRelation, &Target::none(), &oid, View::Write, Rows::first);
    if outcome.as_deref() != Some(ANALYZED) {
        return Done::nothing(Outcome::SkippedLock);
    }
    let rows = session.query(Statement::PlannedRows, &Target::none(), &oid, View::Write, Rows::first);
    Done { outcome: Outcome::Analyzed, rows, changed: true }
}

const ANALYZED: &str = "analyzed";

/// `awa_ingest.analyze_relation`: ANALYZE with the rights of the extension's owner, for the tables listed in
/// `sql/statements/analyzed_relations.sql`. Returns `analyzed`, or `skipped_lock` where somebody holds a lock on the table or keeps one of its
/// partitions for longer than 100 ms.
///
/// Raises 42501 if the session's user may not INSERT, UPDATE and DELETE in the head tables, 22023 for any other table, and 55000 where the
/// storage is unknown. Until the transaction ends, nobody can alter, vacuum or analyze the table.
pub fn analyze_relation(call: &Call) -> Result<Option<Datum>> {
    let wanted = call.oid(0).ok_or_else(|| Error::InvalidArgument("relation must not be NULL".into()))?;
    spi::connect(|session| {
        let storage = authority::resolve(session, View::Caller)?;
        if storage.engine == Engine::Canonical {
            return Err(Error::NoLanes);
        }
        if !HEADS.iter().all(|head| storage.relation(head).is_some_and(session_user_writes)) {
            return Err(Error::MayNotMaintain);
        }
        let known = relations(session, &storage).into_iter().find(|relation| relation.oid == i64::from(wanted.to_u32()));
        let relation = known.ok_or_else(|| Error::NotMaintained(server::relation_name(wanted)))?;
        match subtransaction::attempt(|| analyze_now(session, &relation.name)) {
            Ok(()) => Ok(ANALYZED),
            Err(failure) if failure.is_contention() => Ok("skipped_lock"),
            Err(failure) => failure.raise(),
        }
    })
    .map(IntoDatum::into_datum)
}

/// The name comes from the catalog, quoted.
fn analyze_now(session: &Session, name: &str) {
    // The table first: SKIP_LOCKED alone does not tell what it skipped. It is for the partitions, and says what it skips in the log.
    server::quietly(|| {
        subtransaction::within(PATIENCE, || {
            session.run_once(&format!("LOCK TABLE ONLY {name} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT"));
            session.run_once(&format!("ANALYZE (SKIP_LOCKED) {name}"));
        });
    });
}

fn session_user_writes(table: Oid) -> bool {
    [pg_sys::ACL_INSERT, pg_sys::ACL_UPDATE, pg_sys::ACL_DELETE].into_iter().all(|right| server::session_user_may(table, right))
}

/// What changes when the storage's tables do. Nobody's rights matter for it.
pub fn fingerprint(session: &Session, storage: &Storage) -> Option<String> {
    session.query(Statement::Fingerprint, &Target::none(), &[argument(storage.schema_oid)], View::Write, Rows::first)
}

/// Whether a pass that began at `since`, a `timestamptz`, left out tables. Read as the record's owner, for workers.
pub fn is_incomplete(session: &Session, since: i64) -> Result<bool> {
    let since = [Some(Datum::from(since))];
    let ask = || session.query(Statement::StatisticsIncomplete, &Target::none(), &since, View::Write, Rows::first) == Some(true);
    Ok(authority::act_as(authority::of_own(&["maintenance_records"])?, ask))
}
