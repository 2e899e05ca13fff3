//! The settings that SQL of this extension runs with, whatever the user, the role or the database has set: those that decide how
//! names are written and found, how SQL text is read, and what a statement does besides. Names are hashed for locks, and deparsed
//! text is compared. docs/design.md says which settings are left to the user, and why.
#![allow(unsafe_code)]

use crate::server;
use pgrx::pg_sys::{self, GucContext};
use std::ffi::CStr;

/// Names and values, as the server prints them.
const PINNED: [(&CStr, &CStr); 7] = [
    // Nobody but the server's owner can put anything there.
    (c"search_path", c"pg_catalog, pg_temp"),
    // The name of a lane's sequence is hashed for its lock, here and in awa's triggers.
    (c"quote_all_identifiers", c"off"),
    (c"standard_conforming_strings", c"on"),
    (c"transform_null_equals", c"off"),
    (c"array_nulls", c"on"),
    // The owner of a storage, who makes its lanes, need not have rights on a user's tablespace.
    (c"default_tablespace", c""),
    // awa's triggers make lanes, take unique keys and wake workers, also where logical replication applies changes.
    (c"session_replication_role", c"origin"),
];

/// Gives the settings their values. Returns the level of settings to close afterwards, where one was different.
pub fn pin() -> Option<i32> {
    let mut level = None;
    for (name, value) in PINNED.iter().filter(|(name, value)| !is(name, value)) {
        level = level.or_else(|| Some(server::open_level()));
        server::set_in_level(name, value, GucContext::PGC_SUSET);
    }
    level
}

fn is(name: &CStr, value: &CStr) -> bool {
    // SAFETY: the server knows the setting, and returns a C string that is only read here.
    unsafe {
        let current = pg_sys::GetConfigOption(name.as_ptr(), false, false);
        !current.is_null() && CStr::from_ptr(current) == value
    }
}
