//! Array arguments, walked element by element so that a call of any size needs no memory for them beyond the argument itself.
#![allow(unsafe_code)]

use crate::datum;
use crate::entry::Call;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::{Draft, RunAt};
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::unique::Uniqueness;
use pgrx::pg_sys::{self, Datum};
use pgrx::{IntoDatum, JsonB};
use std::borrow::Cow;

/// The tags of `awa.enqueue`, a `text[]`, as the bytes of a jsonb array; `None` for NULL.
pub fn tags(argument: Option<Datum>) -> Result<Option<&'static [u8]>> {
    let Some(mut array) = Column::open("tags", argument)? else { return Ok(None) };
    let mut tags = Vec::with_capacity(array.length);
    for _ in 0..array.length {
        let tag = text(array.next()).and_then(|tag| tag.ok_or(Fault::WrongType("tags", "an array of strings without NULL")));
        tags.push(tag.map_err(|fault| fault.at(1))?);
    }
    let datum = JsonB(serde_json::json!(tags)).into_datum();
    // SAFETY: a new jsonb datum in the memory of this call.
    Ok(datum.map(|datum| unsafe { datum::bytes(datum) }))
}

/// An array argument.
struct Column {
    name: &'static str,
    length: usize,
    iterator: pg_sys::ArrayIterator,
    /// The element of an array that applies to all jobs, once it is read.
    constant: Option<Option<Datum>>,
}

impl Column {
    fn open(name: &'static str, argument: Option<Datum>) -> Result<Option<Self>> {
        let Some(argument) = argument else { return Ok(None) };
        // SAFETY: the argument is declared as an array; detoasted, it is an ArrayType with its dimensions behind it.
        let (dimensions, length, iterator) = unsafe {
            let array = pg_sys::pg_detoast_datum(argument.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
            let lengths = array.add(1).cast::<i32>();
            let length = pg_sys::ArrayGetNItems((*array).ndim, lengths);
            ((*array).ndim, length as usize, pg_sys::array_create_iterator(array, 0, std::ptr::null_mut()))
        };
        if dimensions > 1 {
            return Err(Error::ArrayDimensions(name));
        }
        Ok(Some(Self { name, length, iterator, constant: None }))
    }

    /// The element for the next job; `None` for NULL. Asked as often as there are jobs.
    fn next(&mut self) -> Option<Datum> {
        if let Some(constant) = self.constant {
            return constant;
        }
        let (mut value, mut null) = (Datum::from(0), true);
        // SAFETY: the iterator lives in this call's memory; it leaves value and null alone at the end.
        unsafe { pg_sys::array_iterate(self.iterator, &mut value, &mut null) };
        let element = (!null).then_some(value);
        if self.length == 1 {
            self.constant = Some(element);
        }
        element
    }
}

const NAMES: [&str; 11] = [
    "kind",
    "queue",
    "args",
    "priority",
    "max_attempts",
    "run_at",
    "metadata",
    "tags",
    "unique_key",
    "unique_states",
    "ordering_key",
];
/// Where each of [`NAMES`] stands among the function's arguments.
const POSITIONS: [usize; 11] = [0, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10];

/// The arrays of a call of `awa.enqueue_columns`.
pub struct Columns {
    columns: [Option<Column>; 11],
    jobs: usize,
}

impl Columns {
    /// Opens the arrays, and checks that they fit together.
    pub fn open(call: &Call) -> Result<Self> {
        let mut columns = [const { None }; 11];
        for (column, (name, position)) in columns.iter_mut().zip(NAMES.into_iter().zip(POSITIONS)) {
            *column = Column::open(name, call.argument(position))?;
        }
        let lengths = || columns.iter().flatten().map(|column| column.length);
        let jobs = if lengths().any(|length| length == 0) { 0 } else { lengths().max().unwrap_or(0) };
        match columns.iter().flatten().find(|column| column.length > 1 && column.length != jobs) {
            Some(misfit) => Err(Error::ArrayLength(misfit.name, misfit.length, jobs)),
            None => Ok(Self { columns, jobs }),
        }
    }

    /// How many jobs the arrays hold.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// The next job.
    pub fn next_draft(&mut self) -> std::result::Result<Draft<'static>, Fault> {
        let element = self.columns.each_mut().map(|column| column.as_mut().and_then(Column::next));
        let [kind, queue, args, priority, max_attempts, run_at, metadata, tags, key, states, ordering_key] = element;
        let smallint = |datum: Option<Datum>| datum.map(|datum| i64::from(datum.value() as i16));
        let states = text(states)?;
        let unique = match (bytes(key), states) {
            (Some(key), states) => Some(Uniqueness::given_bytes(Cow::Borrowed(key), states)?),
            (None, Some(_)) => Uniqueness::given(None, states)?,
            (None, None) => None,
        };
        Ok(Draft {
            kind: text(kind)?,
            queue: text(queue)?,
            args: jsonb(args)?,
            state: None,
            priority: smallint(priority),
            max_attempts: smallint(max_attempts),
            run_at: run_at.map(|datum| RunAt::Micros(datum.value() as i64)),
            metadata: jsonb(metadata)?,
            tags: jsonb(tags)?,
            unique,
            ordering_key: bytes(ordering_key).map(Cow::Borrowed),
        })
    }
}

fn bytes(element: Option<Datum>) -> Option<&'static [u8]> {
    // SAFETY: elements of text[], bytea[] and jsonb[] arguments, which outlive the call.
    element.map(|datum| unsafe { datum::bytes(datum) })
}

fn text(element: Option<Datum>) -> std::result::Result<Option<&'static str>, Fault> {
    bytes(element).map(|bytes| std::str::from_utf8(bytes).map_err(|_| Fault::Encoding)).transpose()
}

fn jsonb(element: Option<Datum>) -> std::result::Result<Option<Value<'static>>, Fault> {
    Ok(bytes(element).map(Value::root).transpose()?)
}
