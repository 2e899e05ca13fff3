//! Shows a job as it is stored in the row that RETURNING and triggers see.
#![allow(unsafe_code)]

use crate::datum::{Arena, Offset};
use crate::ingest::Taken;
use crate::row::{Cell, Kind};
use awa_ingest_core::column::Column;
use awa_ingest_core::error::Result;
use awa_ingest_core::jsonb::{Container, Value};
use pgrx::pg_sys::{self, Datum, TupleTableSlot};
use pgrx::{IntoDatum, direct_function_call_as_datum};

/// Builds such rows.
#[derive(Default)]
pub struct Returned {
    arena: Arena,
}

/// A value on its way into the row.
enum Shown {
    /// As the statement gave it.
    Given,
    Null,
    Value(Datum),
    InArena(Offset),
}

impl Returned {
    /// Puts the job in place of the slot's row.
    ///
    /// # Safety
    /// The slot holds a row with these cells; the current memory context lives as long as the row.
    pub unsafe fn show(&mut self, taken: &Taken<'_>, cells: &[Cell], slot: *mut TupleTableSlot) -> Result<()> {
        self.arena.clear();
        let shown: Vec<Shown> = cells.iter().map(|cell| self.value(taken, *cell)).collect::<Result<_>>()?;
        // SAFETY: the slot's row was read in full, so that values and nulls hold all attributes; the tuple is a copy of what it is formed
        // of, made before the slot lets go of its row.
        unsafe {
            let descriptor = (*slot).tts_tupleDescriptor;
            let attributes = (*descriptor).natts as usize;
            let mut values = std::slice::from_raw_parts((*slot).tts_values, attributes).to_vec();
            let mut nulls = std::slice::from_raw_parts((*slot).tts_isnull, attributes).to_vec();
            for (cell, shown) in cells.iter().zip(shown) {
                let (value, null) = match shown {
                    Shown::Given => continue,
                    Shown::Null => (Datum::from(0), true),
                    Shown::Value(datum) => (datum, false),
                    Shown::InArena(offset) => (self.arena.datum(offset), false),
                };
                (values[cell.place], nulls[cell.place]) = (coerce(cell, value, null), null);
            }
            let tuple = pg_sys::heap_form_tuple(descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::ExecForceStoreHeapTuple(tuple, slot, false);
        }
        Ok(())
    }

    fn value(&mut self, taken: &Taken<'_>, cell: Cell) -> Result<Shown> {
        let job = &taken.job;
        let Some(column) = cell.column else { return Ok(Shown::Value(Datum::from(taken.job_id))) };
        let unique = job.unique.as_ref();
        Ok(match column {
            Column::Kind => self.bytes(Some(job.kind.as_bytes())),
            Column::Queue => self.bytes(Some(job.queue.as_bytes())),
            Column::State => self.bytes(Some(job.state.name().as_bytes())),
            Column::Args => self.json(&job.args.unwrap_or(Value::EMPTY_OBJECT)),
            Column::Priority => Shown::Value(Datum::from(job.priority)),
            Column::MaxAttempts => Shown::Value(Datum::from(job.max_attempts)),
            Column::RunAt => taken.run_at.map_or(Shown::Null, |run_at| Shown::Value(Datum::from(run_at))),
            Column::Metadata => self.json(&job.metadata.map_or(Value::EMPTY_OBJECT, Value::Object)),
            Column::Tags if cell.kind == Kind::TextArray => texts(job.tags)?.map_or(Shown::Null, Shown::Value),
            Column::Tags => self.json(&job.tags.map_or(Value::EMPTY_ARRAY, Value::Array)),
            Column::UniqueKey => self.bytes(unique.map(|unique| &*unique.key)),
            Column::UniqueStates => {
                let states = unique.and_then(|unique| unique.states).map(|states| states.text());
                self.bytes(states.as_ref().map(|states| &states[..]))
            }
            Column::OrderingKey | Column::Uniqueness => Shown::Given,
        })
    }

    fn bytes(&mut self, bytes: Option<&[u8]>) -> Shown {
        bytes.map_or(Shown::Null, |bytes| Shown::InArena(self.arena.bytes(bytes)))
    }

    fn json(&mut self, value: &Value<'_>) -> Shown {
        Shown::InArena(self.arena.jsonb(value))
    }
}

/// The value as the column's declared type holds it, as an assignment would make it. What the statement gives was made so by the server, but
/// not what the table fills in. Raises what the server raises for values that do not fit (22001, 23514, 23502).
///
/// # Safety
/// The value is of the cell's kind.
unsafe fn coerce(cell: &Cell, value: Datum, null: bool) -> Datum {
    // SAFETY: the functions get the arguments of their SQL signatures; the caller vouches for the value.
    unsafe {
        let modifier = Some(cell.modifier).filter(|modifier| *modifier >= 0 && !null);
        let coerced = match (cell.kind, modifier) {
            (Kind::Text, Some(modifier)) => {
                direct_function_call_as_datum(pg_sys::varchar, &[Some(value), modifier.into_datum(), false.into_datum()])
            }
            (Kind::Time, Some(modifier)) => {
                direct_function_call_as_datum(pg_sys::timestamptz_scale, &[Some(value), modifier.into_datum()])
            }
            _ => None,
        };
        let value = coerced.unwrap_or(value);
        if let Some(domain) = cell.domain {
            pg_sys::domain_check(value, null, domain, std::ptr::null_mut(), pg_sys::CurrentMemoryContext);
        }
        value
    }
}

/// Tags as `text[]`.
fn texts(tags: Option<Container<'_>>) -> Result<Option<Datum>> {
    let mut texts = Vec::new();
    if let Some(tags) = tags {
        for tag in tags.elements()? {
            if let Value::String(tag) = tag? {
                texts.push(tag);
            }
        }
    }
    Ok(texts.into_datum())
}
