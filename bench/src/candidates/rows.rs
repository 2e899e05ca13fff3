//! Rows as COPY takes them, in CSV or in the binary format, and the way they are sent.

use std::fmt::Write as _;
use std::mem;
use std::pin::pin;

use anyhow::Result;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::SinkExt as _;
use serde_json::Value;
use tokio_postgres::{Client, Statement};

use crate::jobs::{Job, UNIQUE_STATES};

/// Pieces of this size let the server read while the client still makes the next ones, or sends them.
pub const CHUNK: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    Binary,
}

/// A point in time, in the form that each format has for it.
pub struct Time {
    pub text: &'static str,
    /// Since 2000-01-01 00:00 UTC.
    pub micros: i64,
}

/// Writes rows field by field.
pub struct Rows {
    format: Format,
    out: BytesMut,
    /// Whether the row has a field already.
    within: bool,
    json: Vec<u8>,
}

impl Rows {
    pub fn new(format: Format, capacity: usize) -> Self {
        let mut out = BytesMut::with_capacity(capacity);
        if format == Format::Binary {
            out.put_slice(b"PGCOPY\n\xff\r\n\0");
            // No flags, no header extension.
            out.put_slice(&[0; 8]);
        }
        Self { format, out, within: false, json: Vec::new() }
    }

    /// A line that names the columns, as CSV has it.
    pub fn header(&mut self, columns: &str) {
        debug_assert!(self.format == Format::Csv);
        writeln!(self.out, "{columns}").expect("a buffer takes every write");
    }

    pub fn begin(&mut self, columns: i16) {
        self.within = false;
        if self.format == Format::Binary {
            self.out.put_i16(columns);
        }
    }

    pub fn end(&mut self) {
        if self.format == Format::Csv {
            self.out.put_u8(b'\n');
        }
    }

    pub fn null(&mut self) {
        self.field(-1);
    }

    /// A text without anything that CSV would have to quote.
    pub fn text(&mut self, value: &str) {
        self.field(value.len());
        self.out.put_slice(value.as_bytes());
    }

    pub fn number2(&mut self, value: i16) {
        self.number(value, &value.to_be_bytes());
    }

    pub fn number4(&mut self, value: i32) {
        self.number(value, &value.to_be_bytes());
    }

    pub fn number8(&mut self, value: i64) {
        self.number(value, &value.to_be_bytes());
    }

    pub fn time(&mut self, value: &Time) {
        self.number(value.text, &value.micros.to_be_bytes());
    }

    /// A bytea.
    pub fn bytes(&mut self, value: &[u8]) {
        self.field(value.len());
        match self.format {
            Format::Binary => self.out.put_slice(value),
            Format::Csv => {
                self.out.put_slice(b"\\x");
                let start = self.out.len();
                self.out.put_bytes(0, 2 * value.len());
                hex::encode_to_slice(value, &mut self.out[start..]).expect("two digits a byte");
            }
        }
    }

    /// A jsonb.
    pub fn json(&mut self, value: &Value) {
        let mut json = mem::take(&mut self.json);
        json.clear();
        serde_json::to_writer(&mut json, value).expect("a buffer takes every write");
        self.field(1 + json.len());
        match self.format {
            Format::Binary => {
                // The version of jsonb's binary format.
                self.out.put_u8(1);
                self.out.put_slice(&json);
            }
            Format::Csv => self.quoted(&json),
        }
        self.json = json;
    }

    /// What is written so far, once it fills a piece.
    pub fn piece(&mut self) -> Option<Bytes> {
        (self.out.len() >= CHUNK).then(|| {
            let piece = self.out.split().freeze();
            self.out.reserve(CHUNK + 4_096);
            piece
        })
    }

    /// Everything not yet taken, with the end that the format asks for.
    pub fn finish(mut self) -> Bytes {
        if self.format == Format::Binary {
            self.out.put_i16(-1);
        }
        self.out.freeze()
    }

    /// Starts a field: its length in the binary format, a comma behind the one before in CSV.
    fn field(&mut self, length: impl TryInto<i32>) {
        match self.format {
            Format::Binary => self.out.put_i32(length.try_into().ok().expect("a field of less than 2 GB")),
            Format::Csv if mem::replace(&mut self.within, true) => self.out.put_u8(b','),
            Format::Csv => {}
        }
    }

    fn number(&mut self, text: impl std::fmt::Display, bytes: &[u8]) {
        self.field(bytes.len());
        match self.format {
            Format::Binary => self.out.put_slice(bytes),
            Format::Csv => write!(self.out, "{text}").expect("a buffer takes every write"),
        }
    }

    fn quoted(&mut self, value: &[u8]) {
        self.out.put_u8(b'"');
        for piece in value.split_inclusive(|&byte| byte == b'"') {
            self.out.put_slice(piece);
            if piece.ends_with(b"\"") {
                self.out.put_u8(b'"');
            }
        }
        self.out.put_u8(b'"');
    }
}

/// The columns that an application sends. Keys are those of awa's clients, which compute them, too.
pub const fn job_columns(unique: bool) -> &'static str {
    if unique { "kind,queue,args,unique_key,unique_states" } else { "kind,queue,args" }
}

/// One row of [`job_columns`].
pub fn write_job(rows: &mut Rows, job: &Job) {
    rows.begin(if job.unique { 5 } else { 3 });
    rows.text(job.kind);
    rows.text(&job.queue);
    rows.json(&job.args);
    if job.unique {
        rows.bytes(&job.unique_key());
        rows.text(UNIQUE_STATES);
    }
    rows.end();
}

/// One COPY of jobs, each piece made while the server works on those before.
pub async fn copy_jobs(client: &Client, statement: &Statement, format: Format, jobs: &[Job]) -> Result<usize> {
    let mut sink = pin!(client.copy_in(statement).await?);
    let mut rows = Rows::new(format, CHUNK + 4_096);
    for job in jobs {
        write_job(&mut rows, job);
        if let Some(piece) = rows.piece() {
            sink.feed(piece).await?;
        }
    }
    sink.feed(rows.finish()).await?;
    Ok(sink.finish().await? as usize)
}

/// One COPY of bytes that are there already.
pub async fn copy_bytes(client: &Client, statement: &Statement, mut bytes: Bytes) -> Result<usize> {
    let mut sink = pin!(client.copy_in(statement).await?);
    while !bytes.is_empty() {
        sink.feed(bytes.split_to(bytes.len().min(CHUNK))).await?;
    }
    Ok(sink.finish().await? as usize)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(format: Format) -> Bytes {
        let mut rows = Rows::new(format, 0);
        rows.begin(5);
        rows.text("a");
        rows.json(&json!({"b": "\""}));
        rows.bytes(&[0, 255]);
        rows.number2(-2);
        rows.null();
        rows.end();
        rows.finish()
    }

    #[test]
    fn csv_doubles_quotes_and_leaves_null_empty() {
        assert_eq!(&row(Format::Csv)[..], b"a,\"{\"\"b\"\":\"\"\\\"\"\"\"}\",\\x00ff,-2,\n");
    }

    #[test]
    fn binary_counts_fields_and_bytes() {
        let mut expected = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
        expected
            .extend(b"\0\x05\0\0\0\x01a\0\0\0\x0b\x01{\"b\":\"\\\"\"}\0\0\0\x02\0\xff\0\0\0\x02\xff\xfe\xff\xff\xff\xff\xff\xff");
        assert_eq!(&row(Format::Binary)[..], expected);
    }
}
