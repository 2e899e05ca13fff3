//! Turns an [`Error`] into a PostgreSQL error with its SQLSTATE, detail, hint, context, constraint and column.
#![allow(unsafe_code)]

use awa_ingest_core::error::Error;
use pgrx::pg_sys;
use std::ffi::{CString, c_char};

/// Raises the error. pgrx's own reports carry no constraint name, and clients look for it.
pub fn raise(error: Error) -> ! {
    // SAFETY: an all-zero ErrorData is what the server itself starts from; every pointer set below is a palloc'd C string, which
    // ThrowErrorData copies before it jumps.
    unsafe {
        let data = pg_sys::ErrorData {
            elevel: pg_sys::PGERROR as i32,
            sqlerrcode: code(error.sqlstate()),
            message: text(&error.to_string()),
            detail: error.detail().map_or(std::ptr::null_mut(), |detail| text(&detail)),
            hint: error.advice().map_or(std::ptr::null_mut(), |hint| text(&hint)),
            context: error.context().map_or(std::ptr::null_mut(), |context| text(&context)),
            constraint_name: error.constraint().map_or(std::ptr::null_mut(), text),
            column_name: error.column().map_or(std::ptr::null_mut(), text),
            assoc_context: pg_sys::CurrentMemoryContext,
            ..Default::default()
        };
        drop(error);
        let copy = pg_sys::palloc(size_of::<pg_sys::ErrorData>()).cast::<pg_sys::ErrorData>();
        copy.write(data);
        pg_sys::ThrowErrorData(copy);
    }
    unreachable!("ThrowErrorData does not return for an ERROR")
}

/// Six bits a character, the first lowest: the server's own encoding.
fn code(sqlstate: &str) -> i32 {
    sqlstate.bytes().rev().fold(0, |code, byte| (code << 6) | (i32::from(byte - b'0') & 0x3F))
}

/// A palloc'd copy. Text out of the database has no NUL; should one appear, the text ends there.
fn text(value: &str) -> *mut c_char {
    let value = CString::new(value.split('\0').next().unwrap_or_default()).unwrap_or_default();
    // SAFETY: pstrdup copies a valid C string.
    unsafe { pg_sys::pstrdup(value.as_ptr()) }
}
