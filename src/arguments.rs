//! Array arguments, walked element by element so that a call of any size needs no memory for them beyond the argument itself.
#![allow(unsafe_code)]

use crate::datum;
use crate::entry::Call;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::Draft;
use awa_ingest_core::jsonb::{LARGEST, MOST_STRINGS, Value, write_strings};
use awa_ingest_core::record::{NO_DEFAULTS, Record};
use pgrx::pg_sys::{self, Datum};

/// Tags given as `text[]`, as a jsonb array written to `buffer`; `None` for NULL.
pub fn text_array(datum: Option<Datum>, buffer: &mut Vec<u8>) -> std::result::Result<Option<Value<'_>>, Fault> {
    let Some(mut array) = datum.map(|datum| Column::read("tags", datum)) else { return Ok(None) };
    if array.dimensions > 1 {
        return Err(NO_TAGS);
    }
    if array.length > MOST_STRINGS {
        return Err(Fault::TagCount(array.length));
    }
    let mut tags = [""; MOST_STRINGS];
    for tag in &mut tags[..array.length] {
        *tag = text(array.next())?.ok_or(NO_TAGS)?;
    }
    if tags.iter().map(|tag| tag.len()).sum::<usize>() > LARGEST {
        return Err(Fault::Oversize("tags"));
    }
    write_strings(&tags[..array.length], buffer);
    Ok(Some(Value::root(buffer)?))
}

/// The elements of an argument of type `text[]`.
pub fn strings(name: &'static str, argument: Datum) -> Result<Vec<Option<&'static str>>> {
    let Some(mut array) = Column::open(name, Some(argument))? else { return Ok(Vec::new()) };
    (0..array.length).map(|_| text(array.next()).map_err(|_| Error::Encoding)).collect()
}

const NO_TAGS: Fault = Fault::WrongType("tags", "an array of strings without NULL");

/// An array argument.
struct Column {
    name: &'static str,
    dimensions: i32,
    length: usize,
    iterator: pg_sys::ArrayIterator,
    /// The element of an array that applies to all jobs, once it is read.
    constant: Option<Option<Datum>>,
}

impl Column {
    fn open(name: &'static str, argument: Option<Datum>) -> Result<Option<Self>> {
        match argument.map(|argument| Self::read(name, argument)) {
            Some(column) if column.dimensions > 1 => Err(Error::ArrayDimensions(name)),
            column => Ok(column),
        }
    }

    fn read(name: &'static str, array: Datum) -> Self {
        // SAFETY: the datum is declared as an array; detoasted, it is an ArrayType with its dimensions behind it.
        unsafe {
            let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
            let dimensions = (*array).ndim;
            let length = pg_sys::ArrayGetNItems(dimensions, array.add(1).cast::<i32>()) as usize;
            Self {
                name,
                dimensions,
                length,
                iterator: pg_sys::array_create_iterator(array, 0, std::ptr::null_mut()),
                constant: None,
            }
        }
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
        let record = Record {
            kind: text(kind)?,
            queue: text(queue)?,
            args: jsonb(args)?,
            priority: smallint(priority),
            max_attempts: smallint(max_attempts),
            run_at: run_at.map(|datum| datum.value() as i64),
            metadata: jsonb(metadata)?,
            tags: jsonb(tags)?,
            unique_key: bytes(key),
            unique_states: text(states)?,
            ordering_key: bytes(ordering_key),
            ..Record::default()
        };
        record.draft(&NO_DEFAULTS)
    }
}

fn bytes(element: Option<Datum>) -> Option<&'static [u8]> {
    // SAFETY: elements of text[], bytea[] and jsonb[] arguments, which outlive the call.
    element.map(|datum| unsafe { datum::bytes(datum) })
}

fn text(element: Option<Datum>) -> std::result::Result<Option<&'static str>, Fault> {
    // SAFETY: as above.
    element.map(|datum| unsafe { datum::text(datum) }).transpose()
}

fn jsonb(element: Option<Datum>) -> std::result::Result<Option<Value<'static>>, Fault> {
    // SAFETY: as above.
    element.map(|datum| unsafe { datum::json(datum) }).transpose()
}
