//! Checks a foreign table's columns when it is made or altered.
#![allow(unsafe_code)]

use crate::entry::Call;
use crate::row::Reader;
use crate::spi::{self, Rows, View};
use crate::statements::{Statement, Target};
use awa_ingest_core::error::Result;
use pgrx::PgRelation;
use pgrx::pg_sys::{self, Datum, Oid};
use std::ffi::CStr;

/// `awa_ingest.check_foreign_tables`, an event trigger at the end of a command. Raises 42703, 42804 and 0A000, as the first row would.
pub fn check_foreign_tables(_call: &Call) -> Result<Option<Datum>> {
    let oids = |rows: &Rows| rows.map(|row| rows.get::<i64>(row, 0)).collect::<Vec<_>>();
    let tables = spi::connect(|session| session.query(Statement::CreatedForeignTables, &Target::none(), &[], View::Write, oids));
    for table in tables.into_iter().flatten().map(|oid| Oid::from(oid as u32)).filter(|table| is_ours(*table)) {
        // SAFETY: the command that is about to end holds a lock on the table.
        let table = unsafe { PgRelation::open(table) };
        // SAFETY: the descriptor is the table's, which is open.
        unsafe { Reader::new((*table.as_ptr()).rd_att) }?;
    }
    Ok(None)
}

/// Whether its server belongs to this extension's wrapper, of which there is one a database.
fn is_ours(table: Oid) -> bool {
    // SAFETY: each raises for what does not exist, and these exist; the name is a C string.
    unsafe {
        if pg_sys::get_rel_relkind(table) as u8 != pg_sys::RELKIND_FOREIGN_TABLE {
            return false;
        }
        let server = pg_sys::GetForeignServer((*pg_sys::GetForeignTable(table)).serverid);
        let wrapper = pg_sys::GetForeignDataWrapper((*server).fdwid);
        CStr::from_ptr((*wrapper).fdwname) == c"awa_ingest"
    }
}
