//! The server programming interface, as this extension uses it: kept plans over named relations, under a chosen snapshot.
//!
//! pgrx's own client can neither register a tuplestore as a relation nor read with a snapshot newer than the transaction's.
#![allow(unsafe_code)]

use crate::pinned;
use crate::statements::{Statement, Target};
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{FromDatum, IntoDatum};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};

thread_local! {
    /// Plans of every statement and target used in this process. Statements name their tables, so that the server's invalidation
    /// keeps plans true; the number of targets is bounded by the storages there are.
    static PLANS: RefCell<HashMap<(Statement, Target), pg_sys::SPIPlanPtr>> = RefCell::default();
}

/// What a statement sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Writes, and sees what the transaction sees with all its own changes.
    Write,
    /// Reads with the snapshot of the caller's statement.
    Caller,
    /// Reads what is committed now, also where the transaction keeps an older snapshot, as well as its own changes. The catalogs are
    /// as new: without that, a lane that another session has just made has a row but no sequence.
    Latest,
}

/// An open connection to the interface. Everything allocated meanwhile goes when it closes.
pub struct Session(());

/// Runs `work` connected, and with the settings of [`pinned`].
pub fn connect<T>(work: impl FnOnce(&Session) -> T) -> T {
    // SAFETY: connect and finish are paired; after an error the transaction's end does what finish does.
    unsafe {
        let level = pinned::pin();
        check(pg_sys::SPI_connect(), "SPI_connect");
        let result = work(&Session(()));
        check(pg_sys::SPI_finish(), "SPI_finish");
        if let Some(level) = level {
            pg_sys::AtEOXact_GUC(true, level);
        }
        result
    }
}

/// An argument: its datum, or `None` for NULL.
pub type Argument = Option<Datum>;

/// An argument from a Rust value.
pub fn argument<T: IntoDatum>(value: T) -> Argument {
    value.into_datum()
}

/// The rows of a statement.
pub struct Rows {
    table: *mut pg_sys::SPITupleTable,
    /// How many there are.
    pub count: usize,
}

impl Rows {
    /// The value in a row and column, both from 0; `None` for NULL, and behind the last row.
    pub fn get<T: FromDatum>(&self, row: usize, column: i32) -> Option<T> {
        if row >= self.count {
            return None;
        }
        // SAFETY: the result is in the session's memory, and the row is one of its rows; the statement's file gives the type.
        unsafe {
            let table = &*self.table;
            let mut null = false;
            let datum = pg_sys::SPI_getbinval(*table.vals.add(row), table.tupdesc, column + 1, &mut null);
            T::from_polymorphic_datum(datum, null, pg_sys::SPI_gettypeid(table.tupdesc, column + 1))
        }
    }

    /// The datum in a row and column, good until the rows are freed.
    pub fn raw(&self, row: usize, column: i32) -> Option<Datum> {
        if row >= self.count {
            return None;
        }
        // SAFETY: as in `get`.
        unsafe {
            let table = &*self.table;
            let mut null = false;
            let datum = pg_sys::SPI_getbinval(*table.vals.add(row), table.tupdesc, column + 1, &mut null);
            (!null).then_some(datum)
        }
    }

    /// The datum in a row and column, as a copy that lives on where the caller of [`connect`] allocates.
    pub fn datum(&self, row: usize, column: i32) -> Option<Datum> {
        let datum = self.raw(row, column)?;
        let (mut length, mut by_value) = (0, false);
        // SAFETY: the copy is made by the length of the column's type.
        unsafe {
            pg_sys::get_typlenbyval(pg_sys::SPI_gettypeid((*self.table).tupdesc, column + 1), &mut length, &mut by_value);
            Some(pg_sys::SPI_datumTransfer(datum, by_value, length.into()))
        }
    }

    /// The rows' tuples, good until the rows are freed.
    pub fn tuples(&self) -> impl Iterator<Item = pg_sys::HeapTuple> {
        // SAFETY: the table has as many.
        (0..self.count).map(|row| unsafe { *(*self.table).vals.add(row) })
    }

    /// The first row's first column.
    pub fn first<T: FromDatum>(&self) -> Option<T> {
        self.get(0, 0)
    }

    /// What `read` makes of each row's number.
    pub fn map<T>(&self, read: impl FnMut(usize) -> T) -> impl Iterator<Item = T> {
        (0..self.count).map(read)
    }

    /// The rows that the last statement or fetch returned: read, then freed.
    fn take<T>(read: impl FnOnce(&Self) -> T) -> T {
        // SAFETY: the table, if any, is this session's, and is not used again.
        unsafe {
            let rows = Self {
                table: pg_sys::SPI_tuptable,
                count: if pg_sys::SPI_tuptable.is_null() { 0 } else { pg_sys::SPI_processed as usize },
            };
            let result = read(&rows);
            pg_sys::SPI_freetuptable(rows.table);
            result
        }
    }
}

impl Session {
    /// Runs a statement that writes. Returns how many rows it wrote.
    pub fn run(&self, statement: Statement, target: &Target, arguments: &[Argument]) -> u64 {
        self.execute(statement, target, arguments, View::Write);
        // SAFETY: set by the statement that was just run.
        let written = unsafe { pg_sys::SPI_processed };
        Rows::take(|_| written)
    }

    /// Runs a statement, and reads its rows.
    pub fn query<T>(
        &self,
        statement: Statement,
        target: &Target,
        arguments: &[Argument],
        view: View,
        read: impl FnOnce(&Rows) -> T,
    ) -> T {
        self.execute(statement, target, arguments, view);
        Rows::take(read)
    }

    fn execute(&self, statement: Statement, target: &Target, arguments: &[Argument], view: View) {
        let plan = self.plan(statement, target);
        let (mut values, nulls) = split(arguments);
        // SAFETY: the plan is kept, and statement files and argument lists are checked against each other by preparing them; the
        // snapshot pushed is popped again, and by the transaction's end after an error.
        unsafe {
            if view == View::Latest {
                renew_catalogs();
                pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
            }
            let code = pg_sys::SPI_execute_plan(plan, values.as_mut_ptr(), nulls.as_ptr(), view != View::Write, 0);
            if view == View::Latest {
                pg_sys::PopActiveSnapshot();
                renew_catalogs();
            }
            check(code, "SPI_execute_plan");
        }
    }

    /// Runs SQL text once.
    pub fn run_once(&self, sql: &str) {
        let sql = c_string(sql);
        // SAFETY: a C string that outlives the call.
        check(unsafe { pg_sys::SPI_execute(sql.as_ptr(), false, 0) }, "SPI_execute");
    }

    /// Opens a cursor, for results of any size.
    pub fn open(&self, statement: Statement, target: &Target, arguments: &[Argument]) -> Cursor {
        let plan = self.plan(statement, target);
        let (mut values, nulls) = split(arguments);
        // SAFETY: as for `run`.
        let portal = unsafe { pg_sys::SPI_cursor_open(std::ptr::null(), plan, values.as_mut_ptr(), nulls.as_ptr(), false) };
        Cursor { portal }
    }

    /// Makes a tuplestore visible to statements as a relation, in place of one that has the name already.
    ///
    /// # Safety
    /// The tuplestore and its descriptor live until the session closes or another store takes the name.
    pub unsafe fn register(&self, name: &'static CStr, descriptor: pg_sys::TupleDesc, store: *mut pg_sys::Tuplestorestate) {
        // SAFETY: the relation's struct is allocated in the session's memory; the caller vouches for what it points to.
        unsafe {
            pg_sys::SPI_unregister_relation(name.as_ptr());
            let relation =
                pg_sys::palloc0(size_of::<pg_sys::EphemeralNamedRelationData>()).cast::<pg_sys::EphemeralNamedRelationData>();
            (*relation).md.name = name.as_ptr().cast_mut();
            (*relation).md.tupdesc = descriptor;
            (*relation).md.enrtype = pg_sys::EphemeralNameRelationType::ENR_NAMED_TUPLESTORE;
            // Plans are kept over calls of every size; a middling estimate serves them all.
            (*relation).md.enrtuples = 1000.0;
            (*relation).reldata = store.cast();
            check(pg_sys::SPI_register_relation(relation), "SPI_register_relation");
        }
    }

    fn plan(&self, statement: Statement, target: &Target) -> pg_sys::SPIPlanPtr {
        // Not borrowed while the server works: that may end in any way.
        let key = (statement, target.clone());
        if let Some(plan) = PLANS.with_borrow(|plans| plans.get(&key).copied()) {
            return plan;
        }
        let plan = prepare(&statement.sql(target), statement.arguments());
        PLANS.with_borrow_mut(|plans| plans.insert(key, plan));
        plan
    }
}

/// A result that is fetched piece by piece.
pub struct Cursor {
    portal: pg_sys::Portal,
}

impl Cursor {
    const PIECE: i64 = 1000;

    /// Reads the next rows; none at the end.
    pub fn fetch<T>(&mut self, read: impl FnOnce(&Rows) -> T) -> T {
        // SAFETY: the portal is open until it is closed or the session ends.
        unsafe { pg_sys::SPI_cursor_fetch(self.portal, true, Self::PIECE) }
        Rows::take(read)
    }

    /// Closes the cursor.
    pub fn close(self) {
        // SAFETY: the portal is open.
        unsafe { pg_sys::SPI_cursor_close(self.portal) }
    }
}

/// Takes note of other sessions' changes to the catalogs. The server does so when it locks a table, but not for one that is locked
/// already, nor for one that was not there.
pub fn renew_catalogs() {
    // SAFETY: both may be called wherever tables may be opened.
    unsafe {
        pg_sys::AcceptInvalidationMessages();
        pg_sys::InvalidateCatalogSnapshot();
    }
}

/// A generic plan from the start: the statements' best plan never depends on their arguments, and planning costs more than most of
/// their executions.
fn prepare(sql: &str, types: &[Oid]) -> pg_sys::SPIPlanPtr {
    let sql = c_string(sql);
    let mut types = types.to_vec();
    // SAFETY: text and types outlive the call, which copies them. Keeping a plan moves it out of the session.
    unsafe {
        let options = pg_sys::CURSOR_OPT_GENERIC_PLAN as i32;
        let plan = pg_sys::SPI_prepare_cursor(sql.as_ptr(), types.len() as i32, types.as_mut_ptr(), options);
        assert!(!plan.is_null(), "SPI_prepare_cursor has no plan for {sql:?}");
        check(pg_sys::SPI_keepplan(plan), "SPI_keepplan");
        plan
    }
}

/// Values and null marks as the interface wants them: `n` for NULL, a space for a value.
fn split(arguments: &[Argument]) -> (Vec<Datum>, Vec<std::ffi::c_char>) {
    let values = arguments.iter().map(|argument| argument.unwrap_or(Datum::from(0))).collect();
    let nulls = arguments.iter().map(|argument| if argument.is_some() { b' ' } else { b'n' } as std::ffi::c_char).collect();
    (values, nulls)
}

fn c_string(sql: &str) -> CString {
    CString::new(sql).expect("SQL of this extension has no NUL")
}

/// Negative codes are misuse of the interface, not something a user can cause.
fn check(code: i32, call: &str) {
    assert!(code >= 0, "{call} failed with {code}");
}
