//! The options of a foreign table: what its jobs get where a row gives nothing. Read by the validator when the table is created, and
//! again when a statement writes to it.
#![allow(unsafe_code)]

use crate::context;
use crate::entry::Call;
use crate::ingest::OnConflict;
use crate::input;
use crate::list::nodes;
use awa_ingest_core::error::{Error, Fault, Result};
use awa_ingest_core::jsonb::Value;
use awa_ingest_core::record::{Defaults, Record};
use awa_ingest_core::unique::Uniqueness;
use pgrx::pg_sys::{self, Datum, DefElem, List, Oid};
use std::ffi::CStr;

/// A table's options.
pub struct TableOptions {
    /// What happens to jobs whose keys are taken; `error` unless told otherwise.
    pub on_conflict: OnConflict,
    /// What rows get.
    pub defaults: Defaults,
    /// How many rows PostgreSQL 16 and later may hand over at once: 1, since an error in a batch has lost its line.
    pub batch_size: i32,
}

/// `awa_ingest.fdw_validator`: checks options when they are set. Only foreign tables have any.
///
/// Raises HV00D for an unknown option, and for a bad value what the value would raise in a job.
pub fn validate(call: &Call) -> Result<Option<Datum>> {
    let catalog = call.argument(1).map(|datum| Oid::from(datum.value() as u32));
    // SAFETY: declared as text[] with elements name=value, as catalogs keep options.
    let options = unsafe { pg_sys::untransformRelOptions(call.argument(0).unwrap_or(Datum::from(0))) };
    // SAFETY: the list was just made.
    let options = unsafe { pairs(options) }?;
    match options.first() {
        Some((name, _)) if catalog != Some(pg_sys::ForeignTableRelationId) => Err(Error::UnknownOption(name.clone())),
        // The server takes NULL for a failure.
        _ => TableOptions::read(&options).map(|_| Some(Datum::from(0))),
    }
}

/// Names and values.
///
/// # Safety
/// A list of DefElem nodes with string values.
unsafe fn pairs(options: *mut List) -> Result<Vec<(String, String)>> {
    let text = |text: &CStr| text.to_str().map(str::to_owned).map_err(|_| Error::Encoding);
    // SAFETY: names are C strings, and the server makes one of any value.
    let pair = |option: *mut DefElem| unsafe {
        Ok((text(CStr::from_ptr((*option).defname))?, text(CStr::from_ptr(pg_sys::defGetString(option)))?))
    };
    // SAFETY: the caller vouches for the list.
    unsafe { nodes(options) }.map(pair).collect()
}

impl TableOptions {
    /// Those of a table.
    pub fn of(table: Oid) -> Result<Self> {
        // SAFETY: raises for anything that is no foreign table.
        let options = unsafe { pairs((*pg_sys::GetForeignTable(table)).options) }?;
        Self::read(&options)
    }

    fn read(options: &[(String, String)]) -> Result<Self> {
        let mut read = Self { on_conflict: OnConflict::Error, defaults: Defaults::default(), batch_size: 1 };
        for (name, value) in options {
            match name.as_str() {
                "on_conflict" => read.on_conflict = OnConflict::parse(value)?,
                "batch_size" => read.batch_size = batch_size(value)?,
                _ => read.default(name, value)?,
            }
        }
        Ok(read)
    }

    fn default(&mut self, name: &str, value: &str) -> Result<()> {
        let known = DEFAULTS.into_iter().find(|known| *known == name);
        let name = known.ok_or_else(|| Error::UnknownOption(name.to_owned()))?;
        let where_from = || (format!("option \"{name}\" of a foreign table"), None);
        let set = context::with(&where_from, || set(&mut self.defaults, name, value));
        let good = set.and_then(|()| self.check());
        good.map_err(|fault| Error::Option(name, fault))
    }

    /// A job that says nothing itself shows whether the defaults are good.
    fn check(&self) -> std::result::Result<(), Fault> {
        let kind = self.defaults.kind.is_none().then_some("kind");
        Record { kind, ..Record::default() }.draft(&self.defaults)?.validate().map(drop)
    }
}

/// Options that are defaults of columns.
const DEFAULTS: [&str; 6] = ["kind", "queue", "priority", "max_attempts", "uniqueness", "tags"];

fn set(defaults: &mut Defaults, name: &'static str, value: &str) -> std::result::Result<(), Fault> {
    match name {
        "kind" => defaults.kind = Some(value.to_owned()),
        "queue" => defaults.queue = Some(value.to_owned()),
        "priority" => defaults.priority = Some(input::integer(name, value)?),
        "max_attempts" => defaults.max_attempts = Some(input::integer(name, value)?),
        "uniqueness" => defaults.uniqueness = Uniqueness::from_json(Value::root(input::jsonb(value)?)?)?,
        _ => {
            let mut tags = Vec::new();
            let given = input::tags(value, &mut tags)?;
            defaults.tags = Some(given.to_vec());
        }
    }
    Ok(())
}

fn batch_size(value: &str) -> Result<i32> {
    let size = value.parse().ok().filter(|size| (1..=100_000).contains(size));
    size.ok_or_else(|| Error::InvalidArgument(format!("option \"batch_size\" must be 1 to 100000, and is \"{value}\"")))
}
