//! `awa.enqueue_csv`: CSV decoded in the server, for callers that cannot COPY.
#![allow(unsafe_code)]

use crate::arguments::strings;
use crate::context;
use crate::datum;
use crate::entry::Call;
use crate::functions::on_conflict;
use crate::ingest::Ingest;
use crate::input;
use crate::memory::RowMemory;
use awa_ingest_core::column::Column;
use awa_ingest_core::csv::{self, Dialect, Reader, Record as Row};
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::Draft;
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::record::{NO_DEFAULTS, Record};
use pgrx::pg_sys::Datum;
use std::cell::Cell;

/// Jobs from CSV, given as `bytea` or `text`. One row `(ord, job_id, conflicts_with)` a job, in input order.
///
/// Raises 22P04 for malformed CSV, 22021 for text that is no UTF-8, 22023 for bad arguments, what the server's input functions raise for
/// values, and the errors of `awa.enqueue_batch`; all with line and column in their context. Needs what `awa_ingest.grant_producer` grants.
pub fn enqueue_csv(call: &Call) -> Result<Option<Datum>> {
    let on_conflict = on_conflict(call, 1)?;
    let rows = call.rows();
    // SAFETY: declared as bytea or text; arguments outlive the call.
    let Some(input) = call.argument(0).map(|datum| unsafe { datum::bytes(datum) }) else { return Ok(None) };
    let mut reader = Reader::new(input, dialect(call)?, columns(call)?)?;
    if let Some(first) = reader.passed_over() {
        pgrx::warning!(
            "the first line of the CSV, \"{first}…\", was taken for a header and left out; header => false makes it a job"
        );
    }
    let mut ingest = Ingest::new(on_conflict, rows)?;
    let mut memory = RowMemory::new();
    let mut tags = Vec::new();
    while let Some(row) = reader.next()? {
        let added = memory.of_row(|| ingest.add(draft(&row, &mut tags)).map(drop));
        added.map_err(|error| row.locate(error))?;
    }
    memory.close();
    ingest.finish().map_err(|error| locate(&reader, error))?;
    Ok(None)
}

/// An error about a job that comes up when all rows are read.
fn locate(reader: &Reader<'_>, error: Error) -> Error {
    match error.ordinal().and_then(|ordinal| reader.place_of(ordinal)) {
        Some(place) => error.at(place),
        None => error,
    }
}

fn dialect(call: &Call) -> Result<Dialect> {
    let header = call.argument(2).is_none_or(|datum| datum.value() != 0);
    Dialect::new(call.text(4)?.unwrap_or(","), call.text(3)?.unwrap_or("__AWA_NULL__"), header)
}

fn columns(call: &Call) -> Result<Option<Vec<Column>>> {
    call.argument(5).map(|datum| csv::columns(strings("columns", datum)?)).transpose()
}

/// The job in a row. Values are read by the server's own input functions, which raise their errors themselves: the context says where.
fn draft<'r>(row: &Row<'r>, tags: &'r mut Vec<u8>) -> std::result::Result<Draft<'r>, Fault> {
    let at = Cell::new(Column::Kind);
    let place = || {
        let column = at.get().name();
        (format!("job {}, {}", row.ordinal(), row.place(Some(column))), Some(column))
    };
    let record = context::with(&place, || {
        let get = |column| {
            at.set(column);
            row.get(column)
        };
        let filled = |column: Column| match get(column) {
            Some("") => Err(Fault::EmptyField(column.name())),
            text => Ok(text),
        };
        let json = |column| filled(column)?.map(|text| Ok::<_, Fault>(Value::root(input::jsonb(text)?)?)).transpose();
        let integer = |column: Column| get(column).map(|text| input::integer(column.name(), text)).transpose();
        Ok::<_, Fault>(Record {
            kind: get(Column::Kind),
            queue: get(Column::Queue),
            args: json(Column::Args)?,
            state: get(Column::State),
            priority: integer(Column::Priority)?,
            max_attempts: integer(Column::MaxAttempts)?,
            run_at: get(Column::RunAt).map(input::timestamp).transpose()?,
            metadata: json(Column::Metadata)?,
            unique_key: get(Column::UniqueKey).map(input::key).transpose()?,
            unique_states: filled(Column::UniqueStates)?,
            ordering_key: get(Column::OrderingKey).map(|text| input::bytea(Column::OrderingKey.name(), text)).transpose()?,
            uniqueness: json(Column::Uniqueness)?,
            tags: filled(Column::Tags)?.map(|text| Ok::<_, Fault>(Value::root(input::tags(text, tags)?)?)).transpose()?,
            job_id: None,
        })
    });
    record?.draft(&NO_DEFAULTS)
}
