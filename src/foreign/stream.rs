//! The jobs of one statement on their way from a foreign table into the pipeline.
#![allow(unsafe_code)]

use super::options::TableOptions;
use super::returned::Returned;
use crate::ingest::{Ingest, OnConflict, Summary};
use crate::last;
use crate::row::Reader;
use crate::settings;
use awa_ingest_core::error::Result;
use awa_ingest_core::outcome::Outcome;
use pgrx::PgMemoryContexts;
use pgrx::pg_sys::{self, Datum, EState, MemoryContext, Relation, TupleTableSlot};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The rows of one foreign table in a statement.
pub struct Stream {
    options: TableOptions,
    reader: Reader,
    /// The tags of a row, where they come as an array.
    tags: Vec<u8>,
    returned: Returned,
    on_conflict: OnConflict,
    /// Whether the rows may come from one of awa's clients.
    for_awa: bool,
    statement: Rc<Statement>,
}

impl Stream {
    /// Opens a table in a statement. `wish` is the statement's own for conflicts, and goes before the table's.
    ///
    /// # Safety
    /// The relation is an open foreign table, and the statement is running.
    pub unsafe fn open(table: Relation, statement: *const EState, wish: Option<OnConflict>, for_awa: bool) -> Result<Self> {
        // SAFETY: the caller vouches for the relation and the statement.
        let (oid, reader, statement) = unsafe { ((*table).rd_id, Reader::new((*table).rd_att)?, Statement::of(statement)) };
        let options = TableOptions::of(oid)?;
        let on_conflict = wish.unwrap_or(options.on_conflict);
        Ok(Self { options, reader, tags: Vec::new(), returned: Returned::default(), on_conflict, for_awa, statement })
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
        let mut pipelines = self.statement.pipelines.borrow_mut();
        let ingest = self.statement.pipeline(&mut pipelines, self.on_conflict, self.for_awa, wanted)?;
        // SAFETY: the caller vouches for the slot, whose datums are of the columns' types.
        let record = unsafe { self.reader.read(ingest.next_ordinal(), row(slot), &mut self.tags) };
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
        let tables = self.statement.tables.get() - 1;
        self.statement.tables.set(tables);
        if tables > 0 {
            return Ok(());
        }
        last::remember(None, Outcome::new(0), Summary::default());
        for pipeline in self.statement.pipelines.take() {
            let storage = pipeline.ingest.storage().clone();
            let (outcome, summary) = pipeline.ingest.finish()?;
            last::remember(Some(storage), outcome, summary);
        }
        Ok(())
    }
}

/// What the foreign tables of a statement share, partitions and the targets of WITH: their jobs are counted together and their lanes taken
/// in one order, if they treat conflicts alike.
struct Statement {
    pipelines: RefCell<Vec<Pipeline>>,
    /// Tables that have not ended.
    tables: Cell<usize>,
    memory: MemoryContext,
}

struct Pipeline {
    on_conflict: OnConflict,
    /// Outcomes are known as rows arrive, and jobs that are skipped are not spooled.
    at_once: bool,
    ingest: Ingest<Outcome>,
}

thread_local! {
    /// Statements under way. A statement's memory keeps its own alive, and drops it in whatever way it ends.
    static OPEN: RefCell<Vec<(*const EState, Weak<Statement>)>> = const { RefCell::new(Vec::new()) };
}

impl Statement {
    /// Counts one more table of a statement.
    ///
    /// # Safety
    /// The statement is running.
    unsafe fn of(statement: *const EState) -> Rc<Self> {
        // SAFETY: the caller vouches for the statement.
        let memory = unsafe { (*statement).es_query_cxt };
        let this = OPEN.with_borrow_mut(|open| {
            open.retain(|(_, known)| known.strong_count() > 0);
            let known = open.iter().find(|(of, _)| *of == statement).and_then(|(_, known)| known.upgrade());
            known.unwrap_or_else(|| {
                let new = Rc::new(Self { pipelines: RefCell::default(), tables: Cell::new(0), memory });
                open.push((statement, Rc::downgrade(&new)));
                new
            })
        });
        if this.tables.get() == 0 {
            last::begin();
        }
        this.tables.set(this.tables.get() + 1);
        this
    }

    /// The pipeline for a policy; another one for rows whose outcome is wanted at once, where jobs are skipped.
    fn pipeline<'p>(
        &self,
        pipelines: &'p mut Vec<Pipeline>,
        on_conflict: OnConflict,
        for_awa: bool,
        wanted: bool,
    ) -> Result<&'p mut Ingest<Outcome>> {
        let at_once = wanted && on_conflict == OnConflict::Skip;
        let index = match pipelines.iter().position(|known| (known.on_conflict, known.at_once) == (on_conflict, at_once)) {
            Some(index) => index,
            None => {
                let new = || Ingest::new(on_conflict, Outcome::new(settings::outcome_memory()));
                // SAFETY: the statement's memory outlives the pipeline.
                let ingest = unsafe { PgMemoryContexts::For(self.memory).switch_to(|_| new()) }?;
                let ingest = if for_awa { ingest.for_awa() } else { ingest };
                pipelines.push(Pipeline { on_conflict, at_once, ingest: ingest.streaming(at_once) });
                pipelines.len() - 1
            }
        };
        Ok(&mut pipelines[index].ingest)
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
