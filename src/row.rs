//! Rows of a foreign table, read as records.
#![allow(unsafe_code)]

use crate::arguments::text_array;
use crate::datum;
use awa_ingest_core::column::Column;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::record::Record;
use pgrx::PgTupleDesc;
use pgrx::pg_sys::{self, Datum, Oid, TupleDesc};

/// How a column's datums are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `text` or `varchar`.
    Text,
    /// `jsonb`.
    Json,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `timestamptz`.
    Time,
    /// `bytea`.
    Bytes,
    /// `text[]`.
    TextArray,
}

/// A column of a foreign table.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Its place in the row, from 0.
    pub place: usize,
    /// What it gives; `None` for the id.
    pub column: Option<Column>,
    /// How it is read.
    pub kind: Kind,
    /// The modifier of its type, or of what its domain is based on; -1 for none.
    pub modifier: i32,
    /// Its domain.
    pub domain: Option<Oid>,
}

impl Cell {
    fn new(place: usize, name: &str, oid: Oid, mut modifier: i32) -> Result<Self> {
        let column = match name {
            "job_id" => None,
            _ => Some(Column::parse(name).ok_or_else(|| Error::UnknownColumn(name.to_owned()))?),
        };
        let (kinds, types): (&[Kind], _) = match column {
            None => (&[Kind::Int8], "bigint"),
            Some(Column::Kind | Column::Queue | Column::State | Column::UniqueStates) => (&[Kind::Text], "text or varchar"),
            Some(Column::Args | Column::Metadata | Column::Uniqueness) => (&[Kind::Json], "jsonb"),
            Some(Column::Priority | Column::MaxAttempts) => (&[Kind::Int2, Kind::Int4, Kind::Int8], "smallint, integer or bigint"),
            Some(Column::RunAt) => (&[Kind::Time], "timestamptz"),
            Some(Column::Tags) => (&[Kind::TextArray, Kind::Json], "text[] or jsonb"),
            Some(Column::UniqueKey | Column::OrderingKey) => (&[Kind::Bytes], "bytea"),
        };
        let kind = Kind::of(oid).filter(|kind| kinds.contains(kind));
        // SAFETY: any oid may be asked for; the modifier of a type that is no domain stays what it is.
        let base = unsafe { pg_sys::getBaseTypeAndTypmod(oid, &mut modifier) };
        let domain = (base != oid).then_some(oid);
        kind.map(|kind| Self { place, column, kind, modifier, domain }).ok_or_else(|| Error::ColumnType(name.to_owned(), types))
    }
}

impl Kind {
    fn of(oid: Oid) -> Option<Self> {
        // SAFETY: any oid may be asked for; a domain is read as what it is based on.
        match unsafe { pg_sys::getBaseType(oid) } {
            pg_sys::TEXTOID | pg_sys::VARCHAROID => Some(Self::Text),
            pg_sys::JSONBOID => Some(Self::Json),
            pg_sys::INT2OID => Some(Self::Int2),
            pg_sys::INT4OID => Some(Self::Int4),
            pg_sys::INT8OID => Some(Self::Int8),
            pg_sys::TIMESTAMPTZOID => Some(Self::Time),
            pg_sys::BYTEAOID => Some(Self::Bytes),
            pg_sys::TEXTARRAYOID => Some(Self::TextArray),
            _ => None,
        }
    }
}

/// Reads the rows of one table.
pub struct Reader {
    cells: Vec<Cell>,
}

impl Reader {
    /// For rows of this shape. Raises 42703 and 42804 for columns that do not fit.
    ///
    /// # Safety
    /// The descriptor is a table's.
    pub unsafe fn new(descriptor: TupleDesc) -> Result<Self> {
        // SAFETY: the caller vouches for the descriptor, which is only read.
        let descriptor = unsafe { PgTupleDesc::from_pg_unchecked(descriptor) };
        let live = descriptor.iter().enumerate().filter(|(_, attribute)| !attribute.is_dropped());
        let cells = live.map(|(place, attribute)| match attribute.attgenerated as u8 {
            // Computed when it is read, which never happens.
            b'v' => Err(Error::VirtualColumn(attribute.name().to_owned())),
            _ => Cell::new(place, attribute.name(), attribute.atttypid, attribute.atttypmod),
        });
        Ok(Self { cells: cells.collect::<Result<_>>()? })
    }

    /// The table's columns, without those that were dropped.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Reads a row. `value` gives the datum at a place, `None` for NULL; tags that come as an array go into the buffer `tags`.
    ///
    /// # Safety
    /// The datums are of the columns' types, and stay in place, as does the current memory context, as long as the record is used.
    pub unsafe fn read<'a>(
        &self,
        value: impl Fn(usize) -> Option<Datum>,
        tags: &'a mut Vec<u8>,
    ) -> std::result::Result<Record<'a>, Fault> {
        let mut record = Record::default();
        let mut array = None;
        for cell in &self.cells {
            let Some(datum) = value(cell.place) else { continue };
            // SAFETY: the caller vouches for the datums; kinds are what the columns' types were found to be.
            unsafe {
                match cell.column {
                    None => record.job_id = Some(integer(cell.kind, datum)),
                    Some(Column::Kind) => record.kind = Some(datum::text(datum)?),
                    Some(Column::Queue) => record.queue = Some(datum::text(datum)?),
                    Some(Column::Args) => record.args = Some(datum::json(datum)?),
                    Some(Column::State) => record.state = Some(datum::text(datum)?),
                    Some(Column::Priority) => record.priority = Some(integer(cell.kind, datum)),
                    Some(Column::MaxAttempts) => record.max_attempts = Some(integer(cell.kind, datum)),
                    Some(Column::RunAt) => record.run_at = Some(integer(cell.kind, datum)),
                    Some(Column::Metadata) => record.metadata = Some(datum::json(datum)?),
                    Some(Column::Tags) if cell.kind == Kind::TextArray => array = Some(datum),
                    Some(Column::Tags) => record.tags = Some(datum::json(datum)?),
                    Some(Column::UniqueKey) => record.unique_key = Some(datum::bytes(datum)),
                    Some(Column::UniqueStates) => record.unique_states = Some(datum::text(datum)?),
                    Some(Column::OrderingKey) => record.ordering_key = Some(datum::bytes(datum)),
                    Some(Column::Uniqueness) => record.uniqueness = Some(datum::json(datum)?),
                }
            }
        }
        if array.is_some() {
            record.tags = text_array(array, tags)?;
        }
        Ok(record)
    }
}

fn integer(kind: Kind, datum: Datum) -> i64 {
    match kind {
        Kind::Int2 => i64::from(datum.value() as i16),
        Kind::Int4 => i64::from(datum.value() as i32),
        _ => datum.value() as i64,
    }
}
