//! A process that refreshes the statistics of a database once, one table a transaction.
#![allow(unsafe_code)]

use super::identity::Identity;
use super::locks::{self, Role};
use super::process;
use crate::maintenance::{self, Pass, Rights, Run, Task};
use crate::settings;
use crate::spi;
use crate::subtransaction::sqlstate;
use pgrx::pg_sys::{Datum, Oid};
use pgrx::{PgSqlErrorCode, pg_guard};

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
    let mut retries = 0;
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
            Err(error) => match pass.interrupted(&error) {
                Some(run) => vec![run],
                // A cancellation that was meant for the table before.
                None if error.0 == sqlstate(PgSqlErrorCode::ERRCODE_QUERY_CANCELED) && retries < RETRIES => {
                    retries += 1;
                    continue;
                }
                None => vec![pass.give_up(error)],
            },
        };
        runs.iter().filter_map(Run::complaint).for_each(|complaint| pgrx::log!("{complaint}"));
        runs.iter().for_each(record);
    }
}

/// How often something is tried again that a late cancellation ended.
const RETRIES: u32 = 3;

/// Records a run. What stands in the way for long the maintenance worker meets, too, and logs.
fn record(run: &Run) {
    for _ in 0..=RETRIES {
        let recorded =
            process::transaction(|| spi::connect(|session| maintenance::record(session, run, Rights::Owner).ok().flatten()));
        process::answer_interrupts();
        if matches!(recorded, Ok(Some(_))) || process::is_stopping() {
            break;
        }
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
