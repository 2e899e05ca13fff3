//! Waits outside a database that others use alone, and starts its maintenance worker when they are done. Where there is no launcher.
#![allow(unsafe_code)]

use super::locks;
use super::{Keeper, process, start_maintenance};
use pgrx::pg_guard;
use pgrx::pg_sys::{Datum, Oid};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(500);

/// Where the process begins.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn awa_ingest_waiter_main(argument: Datum) {
    let database = Oid::from(argument.value() as u32);
    process::begin();
    process::connect(None);
    while process::sleep(TICK) {
        let free = process::transaction(|| {
            process::look_up_database(database).map(|(_, takes_workers)| takes_workers && !locks::database_is_wanted(database))
        });
        match free {
            Ok(None) => break,
            Ok(Some(true)) if start_maintenance(database, Keeper::Server).is_some() => break,
            _ => {}
        }
    }
    process::exit(0)
}

/// Where a process begins that only shows that there is a slot for one.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn awa_ingest_probe_main(_argument: Datum) {
    process::exit(0)
}
