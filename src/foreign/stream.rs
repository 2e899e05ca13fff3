//! The jobs of one statement on their way from a foreign table into the pipeline.
#![allow(unsafe_code)]

use super::options::TableOptions;
use super::returned::Returned;
use super::rights;
use super::statement::{Policy, Report, Statement};
use crate::ingest::OnConflict;
use crate::row::Reader;
use awa_ingest_core::error::Result;
use pgrx::pg_sys::{self, Datum, EState, Oid, Relation, TupleTableSlot};
use std::rc::Rc;

/// The rows of one foreign table in a statement.
pub struct Stream {
    options: TableOptions,
    reader: Reader,
    /// The tags of a row, where they come as an array.
    tags: Vec<u8>,
    returned: Returned,
    policy: Policy,
    statement: Rc<Statement>,
    is_finished: bool,
    /// Whether an INSERT into its parent found it.
    pub is_partition: bool,
    /// Rows that were taken in.
    jobs: i64,
}

impl Stream {
    /// Opens a table in a statement. `wish` is the statement's own for conflicts, and goes before the table's. `owner` is the
    /// view's that the statement names.
    ///
    /// # Safety
    /// The relation is an open foreign table, and the statement is running.
    pub unsafe fn open(table: Relation, statement: *const EState, wish: Option<OnConflict>, owner: Option<Oid>) -> Result<Self> {
        // SAFETY: the caller vouches for the relation.
        let (oid, reader) = unsafe { ((*table).rd_id, Reader::new((*table).rd_att)?) };
        let options = TableOptions::of(oid)?;
        let policy = Policy { on_conflict: wish.unwrap_or(options.on_conflict), at_once: false, role: rights::of(owner)? };
        // SAFETY: the caller vouches for the statement.
        let statement = unsafe { Statement::join(statement) };
        let (tags, returned) = (Vec::new(), Returned::default());
        Ok(Self { options, reader, tags, returned, policy, statement, is_finished: false, is_partition: false, jobs: 0 })
    }

    /// How many rows the server may hand over at once.
    pub fn batch_size(&self) -> i32 {
        self.options.batch_size
    }

    /// Takes in a row. False if it is skipped, which is known here only if the outcome is `wanted`; then the slot shows the job as it is
    /// stored.
    ///
    /// # Safety
    /// The slot holds a row of the table; the current memory context lives as long as the row.
    pub unsafe fn take(&mut self, slot: *mut TupleTableSlot, wanted: bool) -> Result<bool> {
        self.policy.at_once = wanted && self.policy.on_conflict == OnConflict::Skip;
        self.jobs += 1;
        let Self { options, reader, tags, returned, policy, statement, .. } = self;
        statement.add(*policy, |ingest| {
            // SAFETY: the caller vouches for the slot, whose datums are of the columns' types.
            let record = unsafe { reader.read(row(slot), tags) };
            let draft = record.and_then(|record| record.draft(&options.defaults));
            let Some(taken) = rights::act(policy.role, || ingest.add(draft))? else { return Ok(false) };
            if wanted {
                // SAFETY: as above.
                unsafe { returned.show(&taken, reader.cells(), slot)? }
            }
            Ok(true)
        })
    }

    /// The table has all its rows. May be said more than once.
    pub fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_finished, true) { Ok(()) } else { self.statement.leave() }
    }

    /// The statement ends.
    pub fn end(&mut self) -> Result<()> {
        self.finish()?;
        self.statement.end();
        Ok(())
    }

    /// Rows that were taken in, and what was done with them and with those of other tables that are treated alike.
    pub fn report(&self) -> (i64, Vec<Report>) {
        (self.jobs, self.statement.reports(self.policy))
    }
}

/// The datum at a place of the slot's row; `None` for NULL.
///
/// # Safety
/// The slot holds a row.
unsafe fn row(slot: *mut TupleTableSlot) -> impl Fn(usize) -> Option<Datum> {
    // SAFETY: after this, values and nulls hold all attributes.
    let (values, nulls) = unsafe {
        let attributes = (*(*slot).tts_tupleDescriptor).natts;
        if i32::from((*slot).tts_nvalid) < attributes {
            pg_sys::slot_getsomeattrs_int(slot, attributes);
        }
        ((*slot).tts_values, (*slot).tts_isnull)
    };
    // SAFETY: places are below the number of attributes.
    move |place| unsafe { if *nulls.add(place) { None } else { Some(*values.add(place)) } }
}
