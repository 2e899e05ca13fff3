//! Datums of variable length: reading the bytes of an argument, and building values for a row.
#![allow(unsafe_code)]

use awa_ingest_core::error::Fault;
use awa_ingest_core::jsonb::Value;
use pgrx::datum::Interval;
use pgrx::pg_sys::{self, Datum};
use pgrx::{IntoDatum, varlena};
use std::time::Duration;

/// The bytes of a text, bytea or jsonb datum, detoasted where needed.
///
/// # Safety
/// `datum` is such a datum, and stays in place, as does the current memory context, for as long as the bytes are used.
pub unsafe fn bytes<'a>(datum: Datum) -> &'a [u8] {
    // SAFETY: the caller vouches for the datum; detoasting gives a plain or short varlena, whose header tells its length.
    unsafe {
        let plain = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
        std::slice::from_raw_parts(varlena::vardata_any(plain).cast(), varlena::varsize_any_exhdr(plain))
    }
}

/// A text datum as a string. The database's encoding is UTF-8, so that only a damaged value fails.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn text<'a>(datum: Datum) -> Result<&'a str, Fault> {
    // SAFETY: passed on to the caller.
    std::str::from_utf8(unsafe { bytes(datum) }).map_err(|_| Fault::Encoding)
}

/// A jsonb datum as a value.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn json<'a>(datum: Datum) -> Result<Value<'a>, Fault> {
    // SAFETY: passed on to the caller.
    Ok(Value::root(unsafe { bytes(datum) })?)
}

/// An interval of so many microseconds.
pub fn interval(duration: Duration) -> Option<Datum> {
    Interval::from_micros(duration.as_micros() as i64).into_datum()
}

/// Where a value begins in an [`Arena`].
#[derive(Clone, Copy)]
pub struct Offset(usize);

/// Holds the variable-length values of one row until the row is copied; reused from row to row.
#[derive(Default)]
pub struct Arena {
    words: Vec<u64>,
    used: usize,
}

const WORD: usize = size_of::<u64>();
const HEADER: usize = size_of::<u32>();

impl Arena {
    /// Forgets all values.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Adds a text or bytea.
    pub fn bytes(&mut self, bytes: &[u8]) -> Offset {
        self.varlena(&[], bytes)
    }

    /// Adds a jsonb.
    pub fn jsonb(&mut self, value: &Value<'_>) -> Offset {
        let (head, body) = value.parts();
        self.varlena(head.as_ref().map_or(&[], |head| &head[..]), body)
    }

    /// The datum of a value. Good until the arena is next changed.
    pub fn datum(&self, offset: Offset) -> Datum {
        // SAFETY: offsets come from `varlena`, which made room for them in this arena.
        Datum::from(unsafe { self.words.as_ptr().add(offset.0) })
    }

    fn varlena(&mut self, head: &[u8], body: &[u8]) -> Offset {
        let start = self.used;
        let size = HEADER + head.len() + body.len();
        let end = start + size.div_ceil(WORD);
        if end > self.words.len() {
            self.words.resize(end, 0);
        }
        self.used = end;
        // SAFETY: the words from start to end were just made sure of and hold `size` bytes; nothing else refers to them.
        unsafe {
            let target = self.words.as_mut_ptr().add(start).cast::<u8>();
            varlena::set_varsize_4b(target.cast(), size as i32);
            std::ptr::copy_nonoverlapping(head.as_ptr(), target.add(HEADER), head.len());
            std::ptr::copy_nonoverlapping(body.as_ptr(), target.add(HEADER + head.len()), body.len());
        }
        Offset(start)
    }
}
