//! Cuts CSV into fields. `csv-core` finds their ends and takes off their quotes; what it lets pass is refused here.

use super::fault::CsvFault;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use std::ops::Range;

const QUOTE: u8 = b'"';

/// One field of the current row.
#[derive(Debug, Clone)]
pub(super) struct Field {
    /// Where it starts in the input.
    pub start: usize,
    /// Its bytes in [`Fields::text`].
    pub text: Range<usize>,
    /// Whether it was written in quotes.
    pub quoted: bool,
}

/// Bad quoting of a field.
#[derive(Debug)]
pub(super) struct BadField {
    /// Its place in the row, from 0.
    pub index: usize,
    /// Where it starts in the input.
    pub start: usize,
    pub fault: CsvFault,
}

/// The fields of one row after the other.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub input: &'a [u8],
    /// Where the part that is still to be read starts.
    at: usize,
    parser: Reader,
    /// The current row's bytes without quotes; a buffer that is kept, longer than its content.
    text: Vec<u8>,
    /// Where the current row starts in the input.
    pub start: usize,
    /// The current row.
    row: Vec<Field>,
}

impl<'a> Fields<'a> {
    pub fn new(input: &'a [u8], delimiter: u8) -> Self {
        let mut parser = ReaderBuilder::new().delimiter(delimiter).build();
        // Its first call would skip a byte order mark, and so a second one behind ours.
        parser.read_record(b"\n", &mut [], &mut []);
        let at = if input.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
        Self { input, at, parser, text: Vec::new(), start: at, row: Vec::new() }
    }

    /// The fields that are kept of the current row.
    pub fn row(&self) -> &[Field] {
        &self.row
    }

    /// The bytes of a field of the current row.
    pub fn bytes(&self, field: &Field) -> &[u8] {
        &self.text[field.text.clone()]
    }

    /// Reads the next row: keeps its first `limit` fields, and counts all. `None` at the end of the input, and after bad quoting.
    pub fn next(&mut self, limit: usize) -> Result<Option<usize>, BadField> {
        let blank = self.input[self.at..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        self.at += blank;
        self.start = self.at;
        self.row.clear();
        if self.at == self.input.len() {
            return Ok(None);
        }
        let (mut index, mut filled) = (0, 0);
        loop {
            let start = self.at;
            let (end, last) = self.field(filled).map_err(|fault| {
                self.at = self.input.len();
                BadField { index, start, fault }
            })?;
            if index < limit {
                self.row.push(Field { start, text: filled..end, quoted: self.input.get(start) == Some(&QUOTE) });
                filled = end;
            }
            index += 1;
            if last {
                return Ok(Some(index));
            }
        }
    }

    /// Reads a field to where `text` is filled: up to where it then is, and whether the row ends with this field.
    fn field(&mut self, filled: usize) -> Result<(usize, bool), CsvFault> {
        let (start, mut end) = (self.at, filled);
        loop {
            // With room for one field's end only, it stops there.
            let (result, read, written, ended) = self.parser.read_record(&self.input[self.at..], &mut self.text[end..], &mut [0]);
            self.at += read;
            end += written;
            if ended == 1 || result == ReadRecordResult::End {
                // The byte that ends a field was read with it. At the end of the input there is none.
                let raw = &self.input[start..self.at - usize::from(read > 0)];
                check_quotes(raw, &self.text[filled..end])?;
                return Ok((end, matches!(result, ReadRecordResult::Record | ReadRecordResult::End)));
            }
            if result == ReadRecordResult::OutputFull {
                self.grow();
            }
        }
    }

    /// Doubles the buffer, but not beyond what the rest of the input can fill.
    fn grow(&mut self) {
        let more = self.text.len().max(64).min(self.input.len() - self.at);
        self.text.resize(self.text.len() + more, 0);
    }

    /// The line of a place in the input, from 1. LF, CRLF and CR end a line, in quotes as well.
    pub fn line(&self, at: usize) -> u64 {
        let next = |at: usize| self.input.get(at + 1);
        let ends_line = |at: usize, byte: u8| byte == b'\n' || (byte == b'\r' && next(at) != Some(&b'\n'));
        let ends = self.input[..at].iter().enumerate().filter(|&(at, &byte)| ends_line(at, byte)).count();
        ends as u64 + 1
    }
}

/// Compares a field as it is written with what `csv-core` made of it.
fn check_quotes(raw: &[u8], text: &[u8]) -> Result<(), CsvFault> {
    let quotes = text.iter().filter(|&&byte| byte == QUOTE).count();
    if raw.first() != Some(&QUOTE) {
        return if quotes == 0 { Ok(()) } else { Err(CsvFault::StrayQuote) };
    }
    // Quotes behind a closing one are kept as they are, so then fewer bytes are missing than each quote and the outer two.
    if raw.ends_with(&[QUOTE]) && raw.len() == text.len() + quotes + 2 {
        return Ok(());
    }
    Err(if is_closed(raw) { CsvFault::TextBehindQuote } else { CsvFault::OpenQuote })
}

/// True if a single quote follows the one that opens the field.
fn is_closed(raw: &[u8]) -> bool {
    let mut rest = &raw[1..];
    while let Some(at) = rest.iter().position(|&byte| byte == QUOTE) {
        if rest.get(at + 1) != Some(&QUOTE) {
            return true;
        }
        rest = &rest[at + 2..];
    }
    false
}
