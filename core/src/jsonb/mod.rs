//! Reads PostgreSQL's binary `jsonb` format (`src/include/utils/jsonb.h`, unchanged since 9.4) from a byte slice, without copying
//! and without parsing text again: a batch of jobs arrives as `jsonb`, and most of it goes into the storage as it came.
//!
//! A container is a header word (child count and kind), one entry word a child (for objects all keys, then all values) and the
//! children's bytes. An entry holds the child's length, or at every 32nd child its end offset. Numbers and containers start at
//! multiples of four.

mod canonical;
#[cfg(any(test, feature = "testing"))]
mod encode;
mod number;
mod sorted;
mod write;

pub use canonical::write_canonical;
#[cfg(any(test, feature = "testing"))]
pub use encode::{encode, encode_number};
pub use number::Number;
pub use write::{MOST_STRINGS, write_object, write_strings};

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corrupt {
    /// The bytes do not follow the format.
    Format,
    /// A string is not UTF-8, as COPY lets pass from a file in SQL_ASCII.
    Text,
}

type Result<T> = std::result::Result<T, Corrupt>;

const COUNT_MASK: u32 = 0x0FFF_FFFF;
const IS_SCALAR: u32 = 0x1000_0000;
const IS_OBJECT: u32 = 0x2000_0000;
const IS_ARRAY: u32 = 0x4000_0000;

const ENTRY_LENGTH: u32 = 0x0FFF_FFFF;
/// Most bytes of all elements of a container.
pub const LARGEST: usize = ENTRY_LENGTH as usize;
const ENTRY_TYPE: u32 = 0x7000_0000;
const ENTRY_HAS_OFFSET: u32 = 0x8000_0000;

const STRING: u32 = 0x0000_0000;
const NUMERIC: u32 = 0x1000_0000;
const FALSE: u32 = 0x2000_0000;
const TRUE: u32 = 0x3000_0000;
const NULL: u32 = 0x4000_0000;
const CONTAINER: u32 = 0x5000_0000;

/// One JSON value inside a `jsonb` datum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// JSON null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number, as PostgreSQL's `numeric`.
    Number(Number<'a>),
    /// A string.
    String(&'a str),
    /// An array.
    Array(Container<'a>),
    /// An object.
    Object(Container<'a>),
}

impl<'a> Value<'a> {
    /// `{}`.
    pub const EMPTY_OBJECT: Value<'static> = Value::Object(Container { bytes: &IS_OBJECT.to_ne_bytes() });

    /// `[]`.
    pub const EMPTY_ARRAY: Value<'static> = Value::Array(Container { bytes: &IS_ARRAY.to_ne_bytes() });

    /// The value of a whole datum: its bytes behind the varlena header.
    pub fn root(bytes: &'a [u8]) -> Result<Self> {
        let header = word(bytes, 0)?;
        let container = Container { bytes };
        match header & (IS_SCALAR | IS_OBJECT | IS_ARRAY) {
            IS_OBJECT => Ok(Self::Object(container)),
            IS_ARRAY => Ok(Self::Array(container)),
            // A bare scalar is stored as an array of one that says so.
            kind if kind == IS_ARRAY | IS_SCALAR => container.children(1)?.next().unwrap_or(Err(Corrupt::Format)),
            _ => Err(Corrupt::Format),
        }
    }

    /// The bytes of a datum with this value behind its varlena header, in two parts: containers lie there as a datum already, and
    /// a scalar gets the words of an array of one in front.
    pub fn parts(&self) -> (Option<[u8; 8]>, &'a [u8]) {
        let (kind, bytes): (u32, &[u8]) = match self {
            Self::Array(container) | Self::Object(container) => return (None, container.bytes),
            Self::Null => (NULL, &[]),
            Self::Bool(false) => (FALSE, &[]),
            Self::Bool(true) => (TRUE, &[]),
            Self::Number(number) => (NUMERIC, number.datum()),
            Self::String(text) => (STRING, text.as_bytes()),
        };
        let header = IS_ARRAY | IS_SCALAR | 1;
        // No scalar exceeds the length mask: it came out of a datum that obeys it.
        let entry = kind | ENTRY_HAS_OFFSET | bytes.len() as u32;
        let mut words = [0; 8];
        words[..4].copy_from_slice(&header.to_ne_bytes());
        words[4..].copy_from_slice(&entry.to_ne_bytes());
        (Some(words), bytes)
    }

    /// True for a JSON null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// An array or object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Container<'a> {
    bytes: &'a [u8],
}

impl<'a> Container<'a> {
    /// Number of elements, or of keys.
    pub fn len(&self) -> usize {
        word(self.bytes, 0).map_or(0, |header| (header & COUNT_MASK) as usize)
    }

    /// Number of bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// True without elements or keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of an array, in order.
    pub fn elements(&self) -> Result<Children<'a>> {
        self.children(self.len())
    }

    /// The keys and values of an object, in stored order: by length of the key, then by its bytes.
    pub fn fields(&self) -> Result<impl Iterator<Item = Result<(&'a str, Value<'a>)>> + use<'a>> {
        let count = self.len();
        let total = count.checked_mul(2).ok_or(Corrupt::Format)?;
        let keys = self.children(total)?.take(count);
        let mut values = self.children(total)?;
        values.skip_entries(count)?;
        Ok(keys.zip(values).map(|(key, value)| match key? {
            Value::String(key) => Ok((key, value?)),
            _ => Err(Corrupt::Format),
        }))
    }

    /// The numbers and containers among the elements or fields, in stored order. Of all else, only strings are looked at, whether they are UTF-8.
    pub fn numbers_and_containers(&self) -> Result<impl Iterator<Item = Result<Value<'a>>> + use<'a>> {
        let per_child = if word(self.bytes, 0)? & IS_OBJECT != 0 { 2 } else { 1 };
        let mut children = self.children(self.len().checked_mul(per_child).ok_or(Corrupt::Format)?)?;
        Ok(std::iter::from_fn(move || children.next_number_or_container()))
    }

    fn children(&self, count: usize) -> Result<Children<'a>> {
        let data = count.checked_mul(4).and_then(|n| n.checked_add(4)).ok_or(Corrupt::Format)?;
        if data > self.bytes.len() {
            return Err(Corrupt::Format);
        }
        Ok(Children { bytes: self.bytes, data, count, index: 0, offset: 0 })
    }
}

/// Walks the children of a container, keeping the running offset so that each step costs the same.
#[derive(Debug, Clone)]
pub struct Children<'a> {
    bytes: &'a [u8],
    data: usize,
    count: usize,
    index: usize,
    offset: usize,
}

impl<'a> Children<'a> {
    fn skip_entries(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.step()?;
        }
        Ok(())
    }

    fn next_number_or_container(&mut self) -> Option<Result<Value<'a>>> {
        while self.index < self.count {
            let entry = word(self.bytes, 4 + 4 * self.index);
            if entry.is_ok_and(|entry| matches!(entry & ENTRY_TYPE, NUMERIC | CONTAINER)) {
                return self.next();
            }
            if let Err(corrupt) = self.pass() {
                self.index = self.count;
                return Some(Err(corrupt));
            }
        }
        None
    }

    /// Passes over a scalar, of which only strings can be wrong.
    fn pass(&mut self) -> Result<()> {
        match self.step()? {
            (STRING, start, end) => text(self.slice(start, end)?).map(drop),
            _ => Ok(()),
        }
    }

    /// The next child's type and byte range.
    fn step(&mut self) -> Result<(u32, usize, usize)> {
        let entry = word(self.bytes, 4 + 4 * self.index)?;
        let length = (entry & ENTRY_LENGTH) as usize;
        let start = self.offset;
        let end = if entry & ENTRY_HAS_OFFSET != 0 { length } else { start + length };
        if end < start || self.data + end > self.bytes.len() {
            return Err(Corrupt::Format);
        }
        self.index += 1;
        self.offset = end;
        Ok((entry & ENTRY_TYPE, self.data + start, self.data + end))
    }

    fn child(&mut self) -> Result<Value<'a>> {
        let (kind, start, end) = self.step()?;
        match kind {
            NULL => Ok(Value::Null),
            FALSE => Ok(Value::Bool(false)),
            TRUE => Ok(Value::Bool(true)),
            STRING => text(self.slice(start, end)?).map(Value::String),
            NUMERIC => Number::new(self.slice(start.next_multiple_of(4), end)?).map(Value::Number),
            CONTAINER => {
                let bytes = self.slice(start.next_multiple_of(4), end)?;
                match Value::root(bytes)? {
                    value @ (Value::Array(_) | Value::Object(_)) => Ok(value),
                    _ => Err(Corrupt::Format),
                }
            }
            _ => Err(Corrupt::Format),
        }
    }

    fn slice(&self, start: usize, end: usize) -> Result<&'a [u8]> {
        self.bytes.get(start..end).ok_or(Corrupt::Format)
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = Result<Value<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return None;
        }
        let child = self.child();
        if child.is_err() {
            self.index = self.count;
        }
        Some(child)
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Corrupt::Text)
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let end = at.checked_add(4).ok_or(Corrupt::Format)?;
    let chunk = bytes.get(at..end).and_then(|chunk| chunk.try_into().ok()).ok_or(Corrupt::Format)?;
    Ok(u32::from_ne_bytes(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn reads_back_what_was_encoded() {
        let bytes = encode(&json!({"a": [1, "x", null, true, false, {"b": {}}], "long key": "text"}));
        let Value::Object(object) = Value::root(&bytes).unwrap() else { panic!("an object") };
        let fields: Vec<_> = object.fields().unwrap().map(|field| field.unwrap()).collect();
        assert_eq!(fields[1], ("long key", Value::String("text")));
        let Value::Array(array) = fields[0].1 else { panic!("an array") };
        let kinds: Vec<_> = array.elements().unwrap().map(|element| element.unwrap()).collect();
        assert_eq!(kinds.len(), 6);
        assert_eq!(kinds[1], Value::String("x"));
        assert_eq!(kinds[3], Value::Bool(true));
    }

    #[test]
    fn numbers_and_containers_are_found_among_others() {
        let found = |value: serde_json::Value| {
            let bytes = encode(&value);
            let container = match Value::root(&bytes).unwrap() {
                Value::Array(container) | Value::Object(container) => container,
                other => panic!("{other:?}"),
            };
            let found = container.numbers_and_containers().unwrap().map(|value| match value.unwrap() {
                Value::Number(number) => format!("{:?}", number.as_i64()),
                Value::Array(array) => format!("array of {}", array.len()),
                Value::Object(object) => format!("object of {}", object.len()),
                other => panic!("{other:?}"),
            });
            found.collect::<Vec<_>>()
        };
        assert_eq!(found(json!({"a": 1, "bb": "x", "ccc": [1, 2], "d": null, "e": {}})), ["Some(1)", "object of 0", "array of 2"]);
        assert_eq!(found(json!(["x", true, 7, ["y"], "z"])), ["Some(7)", "array of 1"]);
        assert_eq!(found(json!((0..100).map(|n| n.to_string()).collect::<Vec<_>>())).len(), 0);
    }

    #[test]
    fn more_than_one_stride_of_children() {
        let bytes = encode(&json!((0..100).collect::<Vec<_>>()));
        let Value::Array(array) = Value::root(&bytes).unwrap() else { panic!("an array") };
        let numbers: Vec<_> = array
            .elements()
            .unwrap()
            .map(|element| match element.unwrap() {
                Value::Number(number) => number.as_i64().unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_scalar_is_taken_apart_and_put_together() {
        for value in [json!("text"), json!(12345), json!(true), json!(null), json!(-0.25)] {
            let bytes = encode(&value);
            let (head, body) = Value::root(&bytes).unwrap().parts();
            assert_eq!([&head.unwrap(), body].concat(), bytes, "{value}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            if let Ok(value) = Value::root(&bytes) {
                let _ = write_canonical(value, &mut out);
            }
        }

        #[test]
        fn mutated_values_never_panic(at in 0usize..200, byte in any::<u8>()) {
            let mut bytes = encode(&json!({"kind": "k", "args": {"a": [1, 2.5, "x"], "b": null}, "priority": 2}));
            let at = at % bytes.len();
            bytes[at] = byte;
            let mut out = Vec::new();
            if let Ok(value) = Value::root(&bytes) {
                let _ = write_canonical(value, &mut out);
            }
        }
    }
}
