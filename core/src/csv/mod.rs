//! CSV, as `awa.enqueue_csv` takes it: RFC 4180 with LF, CRLF or CR, read row by row. Memory is one row's text.

mod dialect;
mod fault;
mod fields;
#[cfg(any(test, feature = "testing"))]
pub mod reference;
#[cfg(test)]
mod tests;

pub use dialect::{Dialect, columns};
pub use fault::CsvFault;

use crate::column::Column;
use crate::error::{Error, Fault, Place, Result, excerpt};
use fields::{BadField, Field, Fields};

/// Reads the rows of jobs. Blank lines are left out, and a byte order mark at the start.
#[derive(Debug)]
pub struct Reader<'a> {
    dialect: Dialect,
    columns: Vec<Column>,
    fields: Fields<'a>,
    ordinal: u64,
    passed_over: Option<String>,
}

impl<'a> Reader<'a> {
    /// Reads the header line, if there is one. It names the columns unless `columns` does; without either they are
    /// [`Column::unnamed`].
    pub fn new(input: &'a [u8], dialect: Dialect, columns: Option<Vec<Column>>) -> Result<Self> {
        let mut fields = Fields::new(input, dialect.delimiter);
        let named = if dialect.header { header(&mut fields, columns.is_none())? } else { Vec::new() };
        let passed_over = columns.as_ref().filter(|_| dialect.header).and_then(|columns| other_header(&fields, columns));
        let columns = match columns {
            Some(columns) => columns,
            None if dialect.header => named,
            None => Column::unnamed().to_vec(),
        };
        Ok(Self { dialect, columns, fields, ordinal: 0, passed_over })
    }

    /// The columns, in the order of the fields; none if the input has not even a header line.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The first field of a header line that was passed over for other names: it may have been a job.
    pub fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// The next row, `None` at the end. It borrows the reader's buffer, so this is not [`Iterator::next`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        let want = self.columns.len();
        self.ordinal += 1;
        match self.fields.next(want) {
            Ok(None) => Ok(None),
            Ok(Some(have)) if have == want => self.record().map(Some),
            Ok(Some(have)) => Err(self.error(CsvFault::FieldCount(have, want), None, self.fields.start)),
            Err(BadField { index, start, fault }) => Err(self.error(fault, self.columns.get(index), start)),
        }
    }

    /// Where the row of a job starts that was read before. Reads the input again, so it is for an error's report.
    pub fn place_of(&self, ordinal: u64) -> Option<Place> {
        let mut fields = Fields::new(self.fields.input, self.dialect.delimiter);
        for _ in 0..ordinal + u64::from(self.dialect.header) {
            fields.next(0).ok()??;
        }
        Some(Place { line: fields.line(fields.start), column: None })
    }

    fn record(&self) -> Result<Record<'_>> {
        let mut values = [None; Column::COUNT];
        for (column, field) in self.columns.iter().zip(self.fields.row()) {
            let value = text(&self.fields, field).map_err(|fault| self.error(fault, Some(column), field.start))?;
            if field.quoted || value != self.dialect.null {
                values[*column as usize] = Some(value);
            }
        }
        Ok(Record { values, columns: &self.columns, fields: &self.fields, ordinal: self.ordinal })
    }

    fn error(&self, fault: CsvFault, column: Option<&Column>, start: usize) -> Error {
        let place = Place { line: self.fields.line(start), column: column.map(|column| column.name()) };
        Fault::Csv(fault).at(self.ordinal).at(place)
    }
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub struct Record<'r> {
    values: [Option<&'r str>; Column::COUNT],
    columns: &'r [Column],
    fields: &'r Fields<'r>,
    ordinal: u64,
}

impl<'r> Record<'r> {
    /// The value of a column; `None` if it is NULL or the CSV does not have the column.
    pub fn get(&self, column: Column) -> Option<&'r str> {
        self.values[column as usize]
    }

    /// The place of the job in the request, from 1.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The line in which the row starts, from 1. Counts from the start of the input, so it is for an error's report.
    pub fn line(&self) -> u64 {
        self.fields.line(self.fields.start)
    }

    /// The place of a column, if the row has it, or else of the row.
    pub fn place(&self, column: Option<&str>) -> Place {
        match column.and_then(|name| self.columns.iter().position(|column| column.name() == name)) {
            Some(index) => {
                Place { line: self.fields.line(self.fields.row()[index].start), column: Some(self.columns[index].name()) }
            }
            None => Place { line: self.line(), column: None },
        }
    }

    /// Names the place of an error about this row: the line in which the error's column starts, or the row.
    pub fn locate(&self, error: Error) -> Error {
        let place = self.place(error.column());
        error.at(place)
    }
}

/// Reads the header line, and the columns' names in it if they are `wanted`.
fn header(fields: &mut Fields<'_>, wanted: bool) -> Result<Vec<Column>> {
    let error = |fields: &Fields<'_>, index: usize, start: usize, fault: CsvFault| {
        let column = if let CsvFault::RepeatedColumn(column) = fault { Some(column.name()) } else { None };
        Error::CsvHeader { field: index + 1, fault }.at(Place { line: fields.line(start), column })
    };
    // Of more fields than columns, one has a name that is bad.
    if let Err(BadField { index, start, fault }) = fields.next(Column::COUNT + 1) {
        return Err(error(fields, index, start, fault));
    }
    let mut columns = Vec::new();
    for (index, field) in fields.row().iter().enumerate() {
        let name = text(fields, field).map_err(|fault| error(fields, index, field.start, fault))?;
        if wanted {
            columns.push(named(name, &columns).map_err(|fault| error(fields, index, field.start, fault))?);
        }
    }
    Ok(columns)
}

/// The first field of a header line that does not have the names of `columns`, if there is such a line.
fn other_header(fields: &Fields<'_>, columns: &[Column]) -> Option<String> {
    let texts: Vec<_> = fields.row().iter().map(|field| String::from_utf8_lossy(fields.bytes(field))).collect();
    let same = texts.len() == columns.len() && texts.iter().zip(columns).all(|(text, column)| text == column.name());
    texts.first().filter(|_| !same).map(|first| excerpt(first))
}

/// The column that a header field names, behind the columns `before` it.
fn named(name: &str, before: &[Column]) -> std::result::Result<Column, CsvFault> {
    match Column::parse(name) {
        Some(column) if before.contains(&column) => Err(CsvFault::RepeatedColumn(column)),
        Some(column) => Ok(column),
        None if name == "job_id" => Err(CsvFault::JobId),
        None => Err(CsvFault::UnknownColumn(name.to_owned())),
    }
}

/// A field as text that the server can take.
fn text<'f>(fields: &'f Fields<'_>, field: &Field) -> std::result::Result<&'f str, CsvFault> {
    let bytes = fields.bytes(field);
    if bytes.contains(&0) {
        return Err(CsvFault::NulByte);
    }
    std::str::from_utf8(bytes).map_err(|_| CsvFault::NotUtf8)
}
