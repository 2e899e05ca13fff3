//! Rows of `awa.jobs`, which awa's clients get back.
#![allow(unsafe_code)]

use crate::entry::Call;
use awa_ingest_core::error::{Error, Result};
use pgrx::pg_sys::{self, Datum, Oid, TupleDesc};
use pgrx::{IntoDatum, PgTupleDesc, direct_function_call_as_datum};

/// Columns of the view of schema version 40.
pub const WIDTH: usize = 27;

/// A row: datums of the columns' types, `None` for NULL.
pub type Row = [Option<Datum>; WIDTH];

/// Where the state is.
const STATE: usize = 4;

/// Types of the columns, [`Oid::INVALID`] for awa's own enum.
const TYPES: [Oid; WIDTH] = [
    pg_sys::INT8OID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::JSONBOID,
    Oid::INVALID,
    pg_sys::INT2OID,
    pg_sys::INT2OID,
    pg_sys::INT2OID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::JSONBARRAYOID,
    pg_sys::JSONBOID,
    pg_sys::TEXTARRAYOID,
    pg_sys::BYTEAOID,
    pg_sys::BITOID,
    pg_sys::UUIDOID,
    pg_sys::TIMESTAMPTZOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::TEXTOID,
    pg_sys::INT8OID,
    pg_sys::JSONBOID,
];

/// The row type of the running function, checked.
#[derive(Clone, Copy)]
pub struct RowType(TupleDesc);

impl RowType {
    /// What the function is declared to return.
    pub fn of(call: &Call) -> Result<Self> {
        // SAFETY: the call is running; the cache's descriptor stays in place until the catalogs are next looked at, and a view's columns
        // cannot change their types while a function returns them.
        let descriptor = unsafe {
            let function = (*(*call.raw()).flinfo).fn_oid;
            let cache = pg_sys::lookup_type_cache(pg_sys::get_func_rettype(function), pg_sys::TYPECACHE_TUPDESC as i32);
            (*cache).tupDesc
        };
        if descriptor.is_null() {
            return Err(Error::UnknownRow("it is no row type".into()));
        }
        // SAFETY: as above.
        let columns = unsafe { PgTupleDesc::from_pg_unchecked(descriptor) };
        if columns.len() != WIDTH {
            return Err(Error::UnknownRow(format!("it has {} columns", columns.len())));
        }
        for (column, known) in columns.iter().zip(TYPES) {
            let fits = match known {
                // SAFETY: any oid may be asked for.
                Oid::INVALID => unsafe { pg_sys::type_is_enum(column.atttypid) },
                known => column.atttypid == known,
            };
            if !fits || column.attisdropped {
                return Err(Error::UnknownRow(format!("column {} has another type", column.name())));
            }
        }
        Ok(Self(descriptor))
    }

    /// The state of this name.
    pub fn state(self, name: &std::ffi::CStr) -> Option<Datum> {
        // SAFETY: the column is an enum; its input function takes a C string and the type, and raises for a name that it has not.
        unsafe {
            let kind = PgTupleDesc::from_pg_unchecked(self.0).get(STATE).map(|column| column.atttypid);
            direct_function_call_as_datum(pg_sys::enum_in, &[Some(Datum::from(name.as_ptr())), kind.into_datum()])
        }
    }

    /// The row as one value.
    pub fn form(self, row: Row) -> Datum {
        // SAFETY: the row has the types that `of` has seen; the tuple is a copy.
        unsafe {
            let mut values = row.map(|value| value.unwrap_or(Datum::from(0)));
            let mut nulls = row.map(|value| value.is_none());
            let tuple = pg_sys::heap_form_tuple(self.0, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
        }
    }
}

/// An array without elements.
pub fn empty_array(element: Oid) -> Datum {
    // SAFETY: allocates a constant value of an array type.
    Datum::from(unsafe { pg_sys::construct_empty_array(element) })
}
