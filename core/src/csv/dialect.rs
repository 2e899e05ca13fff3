//! How the CSV is written, as the arguments of `awa.enqueue_csv` say.

use crate::column::Column;
use crate::error::{Error, Result};

/// Delimiter, null string, and whether there is a header line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    pub(super) delimiter: u8,
    pub(super) null: String,
    pub(super) header: bool,
}

impl Dialect {
    /// Checks the arguments; the rules are those of COPY.
    pub fn new(delimiter: &str, null_string: &str, header: bool) -> Result<Self> {
        let &[delimiter @ 1..=127] = delimiter.as_bytes() else { return invalid("delimiter must be a single one-byte character") };
        if matches!(delimiter, b'"' | b'\r' | b'\n') {
            return invalid("delimiter cannot be a quote, newline or carriage return");
        }
        if null_string.contains(['"', '\r', '\n', '\0']) {
            return invalid("null_string cannot have a quote, newline or carriage return in it");
        }
        if null_string.contains(char::from(delimiter)) {
            return invalid("null_string cannot have the delimiter in it");
        }
        Ok(Self { delimiter, null: null_string.to_owned(), header })
    }
}

/// The argument `columns`: at least one name, and none twice. `None` is a NULL in the array.
pub fn columns<'a>(names: impl IntoIterator<Item = Option<&'a str>>) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    for name in names {
        let Some(name) = name else { return invalid("columns cannot have a NULL") };
        match Column::parse(name) {
            Some(column) if columns.contains(&column) => return invalid(format!("columns has \"{name}\" twice")),
            Some(column) => columns.push(column),
            None => return Err(Error::UnknownCsvColumn(name.to_owned())),
        }
    }
    if columns.is_empty() { invalid("columns cannot be empty") } else { Ok(columns) }
}

fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::InvalidArgument(what.into()))
}
