//! Text read as SQL reads it, by the input functions of the server. What they raise is left as it is, but for timestamps, which job
//! objects have, too.
#![allow(unsafe_code)]

use crate::arguments::text_array;
use crate::datum;
use crate::spi::argument;
use awa_ingest_core::error::{Error, Fault};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid};
use pgrx::{PgSqlErrorCode, PgTryBuilder, direct_function_call_as_datum};
use std::ffi::CString;
use std::num::IntErrorKind;

type Result<T> = std::result::Result<T, Fault>;

/// The bytes of a `jsonb`, in the current memory context. Raises 22P02 and 22P05.
pub fn jsonb<'a>(text: &str) -> Result<&'a [u8]> {
    let datum = read(pg_sys::jsonb_in, &c_string(text)?, &[]);
    // SAFETY: a new jsonb.
    Ok(datum.map_or(&[], |datum| unsafe { datum::bytes(datum) }))
}

/// The bytes of the `jsonb` that holds a whole request. Raises 22P02 and 22P05, and 54000 with a hint.
pub fn request<'a>(text: &str) -> awa_ingest_core::error::Result<&'a [u8]> {
    PgTryBuilder::new(|| jsonb(text).map_err(|_| Error::Encoding))
        .catch_others(|caught| match &caught {
            CaughtError::PostgresError(error) if error.sql_error_code() == PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED => {
                Err(Error::RequestTooLarge(error.message().to_owned()))
            }
            _ => caught.rethrow(),
        })
        .execute()
}

/// The bytes of a `bytea`, in the current memory context. Raises 22P02; bad hex is a fault, since the server has another code for it.
pub fn bytea<'a>(name: &'static str, text: &str) -> Result<&'a [u8]> {
    let hex = text.strip_prefix("\\x").map(str::as_bytes);
    if hex.is_some_and(|digits| digits.len() % 2 != 0 || !digits.iter().all(u8::is_ascii_hexdigit)) {
        return Err(Fault::Hex(name, text.to_owned()));
    }
    let datum = read(pg_sys::byteain, &c_string(text)?, &[]);
    // SAFETY: a new bytea.
    Ok(datum.map_or(&[], |datum| unsafe { datum::bytes(datum) }))
}

/// A unique key, as `bytea` in hex. Other bytes are refused: they would most likely be hex without its mark, and another key.
pub fn key<'a>(text: &str) -> Result<&'a [u8]> {
    if text.starts_with("\\x") { bytea("unique_key", text) } else { Err(Fault::Hex("unique_key", text.to_owned())) }
}

/// Tags, as a JSON array or an array literal: the bytes of a `jsonb`, in `buffer` or in the current memory context.
pub fn tags<'a>(text: &str, buffer: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    if text.trim_start().starts_with('[') {
        return jsonb(text);
    }
    let input = c_string(text)?;
    // SAFETY: the input function of arrays, with a C string, the elements' type and no modifier.
    let array =
        unsafe { pg_sys::OidInputFunctionCall(Oid::from(pg_sys::F_ARRAY_IN), input.as_ptr().cast_mut(), pg_sys::TEXTOID, -1) };
    text_array(Some(array), buffer)?;
    Ok(buffer)
}

/// An integer; one that is too large for any limit is the largest.
pub fn integer(name: &'static str, text: &str) -> Result<i64> {
    match text.trim_ascii().parse() {
        Ok(integer) => Ok(integer),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(i64::MAX),
        Err(error) if *error.kind() == IntErrorKind::NegOverflow => Ok(i64::MIN),
        Err(_) => Err(Fault::NotAnInteger(name, text.to_owned())),
    }
}

/// A timestamp in the session's time zone and style.
pub fn timestamp(text: &str) -> Result<i64> {
    let bad = |reason: String| Fault::Timestamp(text.to_owned(), reason);
    let input = CString::new(text).map_err(|error| bad(error.to_string()))?;
    PgTryBuilder::new(|| {
        let read = read(pg_sys::timestamptz_in, &input, &[argument(Oid::INVALID), argument(-1)]);
        read.map(|datum| datum.value() as i64).ok_or_else(|| bad("no value".into()))
    })
    .catch_others(|caught| match &caught {
        CaughtError::PostgresError(error) if is_bad_timestamp(error.sql_error_code()) => Err(bad(error.message().to_owned())),
        _ => caught.rethrow(),
    })
    .execute()
}

fn is_bad_timestamp(code: PgSqlErrorCode) -> bool {
    matches!(
        code,
        PgSqlErrorCode::ERRCODE_INVALID_DATETIME_FORMAT
            | PgSqlErrorCode::ERRCODE_DATETIME_FIELD_OVERFLOW
            | PgSqlErrorCode::ERRCODE_INVALID_TIME_ZONE_DISPLACEMENT_VALUE
            | PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE
    )
}

/// Calls an input function.
fn read(function: unsafe fn(FunctionCallInfo) -> Datum, text: &CString, further: &[Option<Datum>]) -> Option<Datum> {
    let arguments: Vec<_> = [Some(Datum::from(text.as_ptr()))].into_iter().chain(further.iter().copied()).collect();
    // SAFETY: input functions take a C string, and some an element type and a type modifier behind it.
    unsafe { direct_function_call_as_datum(function, &arguments) }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Fault::Encoding)
}
