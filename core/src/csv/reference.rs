//! Reads CSV a second way, for tests and fuzzing: a scanner of a few lines says what is quoted, and how well, and the crate `csv`
//! what the fields are. [`compare`] takes the whole outcome, errors with their places included.

use super::{CsvFault, Dialect, Reader};
use crate::column::Column;
use crate::error::{Error, Fault, Place};

/// The rows of an input, column by column, and the error that the reading ended with.
type Outcome = (Vec<[Option<String>; Column::COUNT]>, Option<Error>);

/// One reading of CSV.
#[derive(Debug)]
pub struct Case<'a> {
    dialect: Dialect,
    columns: Option<Vec<Column>>,
    input: &'a [u8],
}

impl<'a> Case<'a> {
    /// Makes a case of any bytes. The first is the delimiter, the second chooses the null string (`0` the default, `1` the empty
    /// one), the third columns and header: `@` neither, `A` to `M` so many columns, `` ` `` a header, `a` to `m` both. `None` if
    /// there is no such dialect.
    pub fn of(data: &'a [u8]) -> Option<Self> {
        const NULLS: [&str; 8] = ["__AWA_NULL__", "", "NULL", "\\N", "a", "é", " ", ","];
        let (&[delimiter, null, layout], input) = data.split_first_chunk()?;
        let delimiter = char::from(delimiter).to_string();
        let dialect = Dialect::new(&delimiter, NULLS[usize::from(null) % NULLS.len()], layout & 0x20 != 0);
        if let Err(error) = &dialect {
            assert_eq!(error.sqlstate(), "22023");
        }
        let columns = match usize::from(layout & 0x1f) % (Column::COUNT + 1) {
            0 => None,
            count => Some(Column::ALL[Column::COUNT - count..].to_vec()),
        };
        Some(Self { dialect: dialect.ok()?, columns, input })
    }
}

/// Panics if the reader and the reference differ.
pub fn compare(case: &Case<'_>) {
    assert_eq!(read(case), expect(case), "{case:?}");
}

/// What the reader makes of it.
fn read(case: &Case<'_>) -> Outcome {
    let mut rows = Vec::new();
    let mut reader = match Reader::new(case.input, case.dialect.clone(), case.columns.clone()) {
        Ok(reader) => reader,
        Err(error) => return (rows, Some(error)),
    };
    let mut last = None;
    let error = loop {
        let record = match reader.next() {
            Ok(Some(record)) => record,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        rows.push(Column::ALL.map(|column| record.get(column).map(str::to_owned)));
        assert_eq!(record.ordinal(), rows.len() as u64);
        last = Some((record.ordinal(), record.line()));
    };
    if let Some((ordinal, line)) = last {
        assert_eq!(reader.place_of(ordinal), Some(Place { line, column: None }));
    }
    (rows, error)
}

/// What it must make of it.
fn expect(case: &Case<'_>) -> Outcome {
    let (rows, broken) = scan(case.input, case.dialect.delimiter);
    check_against_csv(case, &rows, broken.is_none());
    let mut rows = rows.iter();
    let columns = match expect_columns(case, &mut rows, broken.as_ref()) {
        Ok(columns) => columns,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut records = Vec::new();
    for row in rows {
        match expect_record(case, row, &columns) {
            Ok(record) => records.push(record),
            Err((fault, place)) => {
                let error = Fault::Csv(fault).at(records.len() as u64 + 1).at(place);
                return (records, Some(error));
            }
        }
    }
    let error = broken.map(|Broken { index, start, fault }| {
        let column = columns.get(index).map(|column| column.name());
        Fault::Csv(fault).at(records.len() as u64 + 1).at(Place { line: line(case.input, start), column })
    });
    (records, error)
}

fn expect_columns<'r>(
    case: &Case<'_>,
    rows: &mut impl Iterator<Item = &'r Vec<Scanned>>,
    broken: Option<&Broken>,
) -> Result<Vec<Column>, Error> {
    let unnamed = || Column::ALL[..Column::COUNT - 1].to_vec();
    if !case.dialect.header {
        return Ok(case.columns.clone().unwrap_or_else(unnamed));
    }
    let error = |index: usize, start: usize, fault: CsvFault, column: Option<Column>| {
        let place = Place { line: line(case.input, start), column: column.map(Column::name) };
        Error::CsvHeader { field: index + 1, fault }.at(place)
    };
    let mut names: Vec<Column> = Vec::new();
    let Some(header) = rows.next() else {
        return match broken {
            Some(Broken { index, start, fault }) => Err(error(*index, *start, fault.clone(), None)),
            None => Ok(names),
        };
    };
    for (index, field) in header.iter().take(Column::COUNT + 1).enumerate() {
        let name = expect_text(field).map_err(|fault| error(index, field.start, fault, None))?;
        match Column::ALL.into_iter().find(|column| column.name() == name) {
            _ if case.columns.is_some() => {}
            Some(column) if names.contains(&column) => {
                return Err(error(index, field.start, CsvFault::RepeatedColumn(column), Some(column)));
            }
            Some(column) => names.push(column),
            None if name == "job_id" => return Err(error(index, field.start, CsvFault::JobId, None)),
            None => return Err(error(index, field.start, CsvFault::UnknownColumn(name), None)),
        }
    }
    Ok(case.columns.clone().unwrap_or(names))
}

fn expect_record(
    case: &Case<'_>,
    row: &[Scanned],
    columns: &[Column],
) -> Result<[Option<String>; Column::COUNT], (CsvFault, Place)> {
    let place = |start, column| Place { line: line(case.input, start), column };
    if row.len() != columns.len() {
        return Err((CsvFault::FieldCount(row.len(), columns.len()), place(row[0].start, None)));
    }
    let mut record = [const { None }; Column::COUNT];
    for (field, column) in row.iter().zip(columns) {
        let text = expect_text(field).map_err(|fault| (fault, place(field.start, Some(column.name()))))?;
        let is_null = !field.quoted && text == case.dialect.null;
        record[*column as usize] = (!is_null).then_some(text);
    }
    Ok(record)
}

fn expect_text(field: &Scanned) -> Result<String, CsvFault> {
    if field.text.contains(&0) {
        return Err(CsvFault::NulByte);
    }
    String::from_utf8(field.text.clone()).map_err(|_| CsvFault::NotUtf8)
}

/// The crate `csv` must have the same rows, and no others if they are all.
fn check_against_csv(case: &Case<'_>, rows: &[Vec<Scanned>], all: bool) {
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.has_headers(false).flexible(true).delimiter(case.dialect.delimiter).from_reader(case.input);
    let mut record = csv::ByteRecord::new();
    for row in rows {
        assert!(reader.read_byte_record(&mut record).unwrap(), "csv ends early: {case:?}");
        assert!(record.iter().eq(row.iter().map(|field| &field.text)), "csv has {record:?}: {case:?}");
    }
    if all {
        assert!(!reader.read_byte_record(&mut record).unwrap(), "csv has more: {case:?}");
    }
}

/// A field as the scanner sees it.
struct Scanned {
    start: usize,
    quoted: bool,
    text: Vec<u8>,
}

/// Where and why the scanner gives up.
struct Broken {
    index: usize,
    start: usize,
    fault: CsvFault,
}

/// The complete rows up to the first field that is badly quoted.
fn scan(input: &[u8], delimiter: u8) -> (Vec<Vec<Scanned>>, Option<Broken>) {
    let mut rest = input.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(input);
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    loop {
        if row.is_empty() {
            while let [b'\r' | b'\n', behind @ ..] = rest {
                rest = behind;
            }
            if rest.is_empty() {
                return (rows, None);
            }
        }
        let start = input.len() - rest.len();
        match scan_field(&mut rest, delimiter) {
            Ok((quoted, text)) => row.push(Scanned { start, quoted, text }),
            Err(fault) => return (rows, Some(Broken { index: row.len(), start, fault })),
        }
        match rest {
            [byte, behind @ ..] if *byte == delimiter => rest = behind,
            _ => rows.push(std::mem::take(&mut row)),
        }
    }
}

/// Moves `rest` to the byte that ends the field, or to the end.
fn scan_field(rest: &mut &[u8], delimiter: u8) -> Result<(bool, Vec<u8>), CsvFault> {
    let mut text = Vec::new();
    let is_end = |byte: u8| byte == delimiter || byte == b'\r' || byte == b'\n';
    let Some(mut quoted) = rest.strip_prefix(b"\"") else {
        while let [byte, behind @ ..] = *rest
            && !is_end(*byte)
        {
            text.push(*byte);
            *rest = behind;
        }
        return if text.contains(&b'"') { Err(CsvFault::StrayQuote) } else { Ok((false, text)) };
    };
    loop {
        let (byte, behind) = match quoted {
            [] => return Err(CsvFault::OpenQuote),
            [b'"', b'"', behind @ ..] => (b'"', behind),
            [b'"', behind @ ..] if behind.first().is_none_or(|byte| is_end(*byte)) => {
                *rest = behind;
                return Ok((true, text));
            }
            [b'"', ..] => return Err(CsvFault::TextBehindQuote),
            [byte, behind @ ..] => (*byte, behind),
        };
        text.push(byte);
        quoted = behind;
    }
}

/// The line of a place: line ends of two bytes count once.
fn line(input: &[u8], at: usize) -> u64 {
    let before = String::from_utf8_lossy(&input[..at]).replace("\r\n", "\n");
    before.matches(['\r', '\n']).count() as u64 + 1
}
