//! The jobs of one statement on their way from a foreign table into the pipeline.
#![allow(unsafe_code)]

use super::options::TableOptions;
use super::returned::Returned;
use crate::ingest::{Ingest, OnConflict};
use crate::last;
use crate::row::Reader;
use crate::settings;
use awa_ingest_core::error::Result;
use awa_ingest_core::outcome::Outcome;
use pgrx::pg_sys::{self, Datum, EState, Relation, TupleTableSlot};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The rows of one foreign table in a statement.
pub struct Stream {
    options: TableOptions,
    reader: Reader,
    /// The tags of a row, where they come as an array.
    tags: Vec<u8>,
    returned: Returned,
    pipeline: Rc<Pipeline>,
}

impl Stream {
    /// Opens the pipeline for a table in a statement. `wish` is the statement's own for conflicts, and goes before the table's.
    ///
    /// # Safety
    /// The relation is an open foreign table; the current memory context is that of the statement.
    pub unsafe fn open(table: Relation, statement: *const EState, wish: Option<OnConflict>) -> Result<Self> {
        // SAFETY: the caller vouches for the relation.
        let (oid, reader) = unsafe { ((*table).rd_id, Reader::new((*table).rd_att)?) };
        let options = TableOptions::of(oid)?;
        let on_conflict = wish.unwrap_or(options.on_conflict);
        let pipeline = Pipeline::of(statement, on_conflict)?;
        Ok(Self { options, reader, tags: Vec::new(), returned: Returned::default(), pipeline })
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
        let mut pipeline = self.pipeline.ingest.borrow_mut();
        let Some(ingest) = pipeline.as_mut() else { return Ok(false) };
        if wanted {
            ingest.claim_at_once();
        }
        // SAFETY: the caller vouches for the slot, whose datums are of the columns' types.
        let record = unsafe { self.reader.read(row(slot), &mut self.tags) };
        let draft = record.and_then(|record| record.draft(&self.options.defaults));
        let Some(taken) = ingest.add(draft)? else { return Ok(false) };
        if wanted {
            // SAFETY: as above.
            unsafe { self.returned.show(&taken, self.reader.cells(), slot)? }
        }
        Ok(true)
    }

    /// Ends the table's part. The last one of a statement writes everything, and remembers what was done.
    pub fn finish(self) -> Result<()> {
        let tables = self.pipeline.tables.get() - 1;
        self.pipeline.tables.set(tables);
        if tables > 0 {
            return Ok(());
        }
        let Some(ingest) = self.pipeline.ingest.take() else { return Ok(()) };
        let (outcome, summary) = ingest.finish()?;
        last::remember(outcome, summary);
        Ok(())
    }
}

/// What the foreign tables of a statement share, partitions and the targets of WITH: their lanes are taken in one order, and their jobs
/// are counted together.
struct Pipeline {
    ingest: RefCell<Option<Ingest<Outcome>>>,
    /// Tables that have not ended.
    tables: Cell<usize>,
}

thread_local! {
    /// Pipelines of the statements under way. A statement's memory keeps its own alive, and drops it in whatever way it ends.
    static OPEN: RefCell<Vec<(*const EState, OnConflict, Weak<Pipeline>)>> = const { RefCell::new(Vec::new()) };
}

impl Pipeline {
    /// The statement's pipeline for a policy.
    fn of(statement: *const EState, on_conflict: OnConflict) -> Result<Rc<Self>> {
        let open = OPEN.with_borrow_mut(|open| {
            open.retain(|(_, _, pipeline)| pipeline.strong_count() > 0);
            let found = open.iter().find(|(of, policy, _)| (*of, *policy) == (statement, on_conflict));
            found.and_then(|(_, _, pipeline)| pipeline.upgrade())
        });
        let pipeline = match open {
            Some(pipeline) => pipeline,
            None => {
                last::begin();
                let ingest = Ingest::new(on_conflict, Outcome::new(settings::outcome_memory()))?.streaming();
                let pipeline = Rc::new(Self { ingest: RefCell::new(Some(ingest)), tables: Cell::new(0) });
                OPEN.with_borrow_mut(|open| open.push((statement, on_conflict, Rc::downgrade(&pipeline))));
                pipeline
            }
        };
        pipeline.tables.set(pipeline.tables.get() + 1);
        Ok(pipeline)
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
