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
use pgrx::pg_sys::{self, Datum, Relation, TupleTableSlot};

/// A statement's jobs.
pub struct Stream {
    options: TableOptions,
    reader: Reader,
    /// The tags of a row, where they come as an array.
    tags: Vec<u8>,
    returned: Returned,
    ingest: Ingest<Outcome>,
}

impl Stream {
    /// Opens the pipeline for a table. `skip` is the statement's own wish to leave out conflicts.
    ///
    /// # Safety
    /// The relation is an open foreign table; the current memory context lives as long as the statement.
    pub unsafe fn open(table: Relation, skip: bool) -> Result<Self> {
        // SAFETY: the caller vouches for the relation.
        let (oid, reader) = unsafe { ((*table).rd_id, Reader::new((*table).rd_att)?) };
        let options = TableOptions::of(oid)?;
        let on_conflict = if skip { OnConflict::Skip } else { options.on_conflict };
        let ingest = Ingest::new(on_conflict, Outcome::new(settings::outcome_memory()))?.streaming();
        Ok(Self { options, reader, tags: Vec::new(), returned: Returned::default(), ingest })
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
        if wanted {
            self.ingest.claim_at_once();
        }
        // SAFETY: the caller vouches for the slot, whose datums are of the columns' types.
        let record = unsafe { self.reader.read(row(slot), &mut self.tags) };
        let draft = record.and_then(|record| record.draft(&self.options.defaults));
        let Some(taken) = self.ingest.add(draft)? else { return Ok(false) };
        if wanted {
            // SAFETY: as above.
            unsafe { self.returned.show(&taken, self.reader.cells(), slot)? }
        }
        Ok(true)
    }

    /// Writes everything, and remembers what was done.
    pub fn finish(self) -> Result<()> {
        let (outcome, summary) = self.ingest.finish()?;
        last::remember(outcome, summary);
        Ok(())
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
