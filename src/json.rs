//! JSON that callers send as they have it: as `jsonb`, as text of some type, or as a boolean.
#![allow(unsafe_code)]

use crate::entry::Call;
use crate::{context, datum, input};
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::jsonb::Value;
use pgrx::pg_sys::{self, Datum, Oid};

/// How a value arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `jsonb`.
    Jsonb,
    /// `json`, `text`, `varchar`, `char(n)`, or this extension's `json_text`: all are stored as text.
    Text,
    /// `boolean`.
    Boolean,
}

impl Form {
    /// By the type's oid; `None` for a type that holds no JSON.
    pub fn of(oid: Oid) -> Option<Self> {
        // SAFETY: any oid may be asked for; a domain is read as what it is based on.
        match unsafe { pg_sys::getBaseType(oid) } {
            pg_sys::JSONBOID => Some(Self::Jsonb),
            pg_sys::JSONOID | pg_sys::TEXTOID | pg_sys::VARCHAROID | pg_sys::BPCHAROID => Some(Self::Text),
            pg_sys::BOOLOID => Some(Self::Boolean),
            _ => None,
        }
    }

    /// Reads a value. Text goes through `jsonb_in` once, whose errors (22P02, 22P05, 54000) name the job and the key.
    ///
    /// # Safety
    /// The datum arrives in this form, and stays in place, as does the current memory context, as long as the value is used.
    pub unsafe fn read<'a>(self, datum: Datum, ordinal: u64, key: &'static str) -> std::result::Result<Value<'a>, Fault> {
        match self {
            // SAFETY: passed on to the caller.
            Self::Jsonb => unsafe { datum::json(datum) },
            Self::Text => {
                // SAFETY: passed on to the caller.
                let text = unsafe { datum::text(datum) }?;
                let place = || (format!("job {ordinal}, {key}"), Some(key));
                Ok(Value::root(context::with(&place, || input::jsonb(text))?)?)
            }
            Self::Boolean => Ok(Value::Bool(datum.value() as u8 != 0)),
        }
    }
}

/// The argument `uniqueness` of `awa.enqueue`, which is declared polymorphic: the call says what type it has. Raises 42804 for a type that
/// holds no JSON.
pub fn uniqueness(call: &Call, index: usize) -> Result<Option<Value<'_>>> {
    let Some(datum) = call.argument(index) else { return Ok(None) };
    let form =
        call.argument_type(index).and_then(Form::of).ok_or(Error::ArgumentType("uniqueness", "boolean, jsonb, json or text"))?;
    // SAFETY: of the type that the call has; arguments outlive the call.
    unsafe { form.read(datum, 1, "uniqueness") }.map(Some).map_err(|fault| fault.at(1))
}
