//! Array arguments, walked element by element so that a call of any size needs no memory for them beyond the argument itself.
#![allow(unsafe_code)]

use crate::datum;
use crate::entry::Call;
use crate::json::Form;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::job::Draft;
use awa_ingest_core::jsonb::{LARGEST, MOST_STRINGS, Value, write_strings};
use awa_ingest_core::record::{NO_DEFAULTS, Record};
use pgrx::pg_sys::{self, Datum, Oid};

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

/// How many elements an array has, in all its dimensions.
pub fn cardinality(array: Datum) -> usize {
    Column::read("", array).length
}

/// A bit string as text.
pub fn bits(datum: Datum) -> String {
    // SAFETY: declared as bit; behind the varlena header are the number of bits and the bits, the first one highest.
    let (count, bits) = unsafe { datum::bytes(datum) }.split_at(size_of::<i32>());
    let count = i32::from_ne_bytes(count.try_into().unwrap_or_default()) as usize;
    (0..count).map(|at| if bits[at / 8] & (0x80 >> (at % 8)) == 0 { '0' } else { '1' }).collect()
}

/// The name of an enum's value.
pub fn enum_name(datum: Datum) -> String {
    pgrx::enum_helper::lookup_enum_by_oid(Oid::from(datum.value() as u32)).0
}

const NO_TAGS: Fault = Fault::WrongType("tags", "an array of strings without NULL");

/// An array argument.
struct Column {
    name: &'static str,
    /// The type of its elements.
    element: Oid,
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
                element: (*array).elemtype,
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

const NAMES: [&str; 12] = [
    "kind",
    "queue",
    "args",
    "state",
    "priority",
    "max_attempts",
    "run_at",
    "metadata",
    "tags",
    "unique_key",
    "unique_states",
    "ordering_key",
];
/// Where some of [`NAMES`] are.
const ARGS: usize = 2;
const PRIORITY: usize = 4;
const MAX_ATTEMPTS: usize = 5;

/// Where each of [`NAMES`] stands among a function's arguments.
pub type Positions = [Option<usize>; 12];

/// Of `awa.enqueue_columns`.
pub const ENQUEUE_POSITIONS: Positions =
    [Some(0), Some(2), Some(1), None, Some(3), Some(4), Some(5), Some(6), Some(7), Some(8), Some(9), Some(10)];

/// Of `awa_ingest.insert_jobs_compat_batch`.
pub const COMPAT_POSITIONS: Positions =
    [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), Some(7), Some(8), Some(9), Some(10), Some(11)];

/// The arrays of a call.
pub struct Columns {
    columns: [Option<Column>; 12],
    jobs: usize,
    /// How the elements of `args` arrive.
    args: Form,
    /// Jobs that were read.
    read: u64,
}

impl Columns {
    /// Opens the arrays, and checks that they fit together.
    pub fn open(call: &Call, positions: Positions) -> Result<Self> {
        let mut columns = [const { None }; 12];
        for (column, (name, position)) in columns.iter_mut().zip(NAMES.into_iter().zip(positions)) {
            *column = Column::open(name, position.and_then(|position| call.argument(position)))?;
        }
        let lengths = || columns.iter().flatten().map(|column| column.length);
        let jobs = if lengths().any(|length| length == 0) { 0 } else { lengths().max().unwrap_or(0) };
        match columns.iter().flatten().find(|column| column.length > 1 && column.length != jobs) {
            Some(misfit) => Err(Error::ArrayLength(misfit.name, misfit.length, jobs)),
            None => Ok(Self { args: args_form(&columns[ARGS])?, columns, jobs, read: 0 }),
        }
    }

    /// How many jobs the arrays hold.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// The next job.
    pub fn next_draft(&mut self) -> std::result::Result<Draft<'static>, Fault> {
        let element = self.columns.each_mut().map(|column| column.as_mut().and_then(Column::next));
        let [kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, key, states, ordering_key] = element;
        self.read += 1;
        // SAFETY: elements in the form that their array's type stands for, which outlive the call.
        let read_args = |datum| unsafe { self.args.read(datum, self.read, "args") };
        let record = Record {
            kind: text(kind)?,
            queue: text(queue)?,
            args: args.map(read_args).transpose()?,
            state: text(state)?,
            priority: integer(&self.columns[PRIORITY], priority),
            max_attempts: integer(&self.columns[MAX_ATTEMPTS], max_attempts),
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

/// Raises 42804 for elements that hold no JSON.
fn args_form(args: &Option<Column>) -> Result<Form> {
    let Some(args) = args else { return Ok(Form::Jsonb) };
    let form = Form::of(args.element).filter(|form| *form != Form::Boolean);
    form.ok_or(Error::ArgumentType("args", "jsonb[], json[] or text[]"))
}

/// An element of a smallint[] or integer[] argument.
fn integer(column: &Option<Column>, element: Option<Datum>) -> Option<i64> {
    let is_small = column.as_ref().is_some_and(|column| column.element == pg_sys::INT2OID);
    element.map(|datum| if is_small { i64::from(datum.value() as i16) } else { i64::from(datum.value() as i32) })
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
