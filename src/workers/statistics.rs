//! A process that refreshes the statistics of a database once, one table a transaction.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::locks::{self, Role};
use super::process;
use crate::maintenance::{self, Pass, Rights, Run, Task};
use crate::settings;
use crate::spi::{self, Session};
use pgrx::pg_guard;
use pgrx::pg_sys::{Datum, Oid};

/// Where the process begins.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn awa_ingest_statistics_main(argument: Datum) {
    let database = Oid::from(argument.value() as u32);
    process::begin();
    process::connect(Some(database));
    if locks::take(Role::Statistics, database) {
        refresh(database);
    }
    process::exit(0)
}

fn refresh(database: Oid) {
    let identity = match process::transaction(Identity::look_up) {
        Ok(Some(identity)) if identity.is_superuser() => identity,
        _ => return,
    };
    identity.assume();
    process::show(Some(c"statistics"));
    let mut pass = Pass::new(Task::Statistics);
    while !process::is_stopping() && !pass.is_over() {
        let step = limited(settings::statistics_timeout(), || {
            process::transaction(|| match locks::database_is_wanted(database) {
                true => None,
                false => Some(maintenance::next_steps(&mut pass)),
            })
        });
        process::answer_interrupts();
        let runs = match step {
            Ok(Some(runs)) => runs,
            Ok(None) => break,
            Err(_) if process::is_stopping() => break,
            Err(error) => vec![pass.give_up(error)],
        };
        runs.iter().filter_map(Run::complaint).for_each(|complaint| pgrx::log!("{complaint}"));
        // What cannot be recorded the maintenance worker will meet, too, and say so.
        let record =
            |session: &Session| runs.iter().try_for_each(|run| maintenance::record(session, run, Rights::Owner).map(|_| ()));
        let _ = process::transaction(|| spi::connect(record));
    }
}

unsafe extern "C-unwind" {
    fn enable_timeout_after(timeout: u32, milliseconds: i32);
    fn disable_timeout(timeout: u32, keep_indicator: bool);
}

/// The server's number for statement_timeout, the same in all its versions.
const STATEMENT_TIMEOUT: u32 = 3;

/// Runs `work`, and cancels its query after so long. statement_timeout is for clients' statements: nothing else arms it.
fn limited<T>(milliseconds: i32, work: impl FnOnce() -> T) -> T {
    if milliseconds == 0 {
        return work();
    }
    // SAFETY: the server registered the timeout when this process connected; an error in `work` is caught there.
    unsafe {
        enable_timeout_after(STATEMENT_TIMEOUT, milliseconds);
        let done = work();
        disable_timeout(STATEMENT_TIMEOUT, false);
        done
    }
}
