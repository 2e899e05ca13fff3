//! What the launcher, its workers and those who start and stop them tell each other.
#![allow(unsafe_code)]

use crate::server;
use pgrx::pg_sys::{self, Oid};
use pgrx::{PGRXSharedMemory, PgLwLock, pg_shmem_init};

/// Databases that a launcher can serve: background workers run out before.
const MOST: usize = 256;

/// What is known of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing: a worker has to look.
    Unknown,
    /// It has the extension.
    Present,
    /// It has not.
    Absent,
    /// Somebody wants no worker there.
    Stopped,
}

#[derive(Clone, Copy)]
struct Entry {
    database: Oid,
    state: State,
    /// How often somebody has set the state.
    changes: u32,
    /// The worker's process, 0 for none.
    worker: i32,
}

#[derive(Clone, Copy)]
struct Table {
    launcher: i32,
    used: usize,
    entries: [Entry; MOST],
}

// SAFETY: plain values; no pointers.
unsafe impl PGRXSharedMemory for Table {}

const NOBODY: Entry = Entry { database: Oid::INVALID, state: State::Unknown, changes: 0, worker: 0 };

impl Default for Table {
    fn default() -> Self {
        Self { launcher: 0, used: 0, entries: [NOBODY; MOST] }
    }
}

impl Table {
    fn find(&self, database: Oid) -> Option<usize> {
        self.entries[..self.used].iter().position(|entry| entry.database == database)
    }

    /// The database's entry, made where there is room.
    fn entry(&mut self, database: Oid) -> Option<&mut Entry> {
        let place = match self.find(database) {
            Some(place) => place,
            None if self.used < MOST => {
                self.entries[self.used] = Entry { database, ..NOBODY };
                self.used += 1;
                self.used - 1
            }
            None => return None,
        };
        Some(&mut self.entries[place])
    }
}

// SAFETY: nobody else's lock has the name.
static TABLE: PgLwLock<Table> = unsafe { PgLwLock::new(c"awa_ingest databases") };

/// Asks for the memory.
pub fn register() {
    pg_shmem_init!(TABLE);
}

/// This process is the launcher.
pub fn begin_launcher() {
    TABLE.exclusive().launcher = own_process();
}

/// Whether a launcher has begun.
pub fn has_launcher() -> bool {
    TABLE.share().launcher != 0
}

/// State and worker of a database; `None` where the table is full.
pub fn look_up(database: Oid) -> Option<(State, i32)> {
    TABLE.exclusive().entry(database).map(|entry| (entry.state, entry.worker))
}

/// Has the worker of a database end. Its process cannot be another's by now: who ends says so first, under the same lock.
pub fn end_worker(database: Oid) {
    if let Some(entry) = TABLE.exclusive().entry(database).filter(|entry| entry.worker != 0) {
        // SAFETY: sends a signal.
        unsafe { libc::kill(entry.worker, libc::SIGTERM) };
    }
}

/// Forgets databases that do not exist.
pub fn retain(exists: impl Fn(Oid) -> bool) {
    let mut table = TABLE.exclusive();
    let mut place = 0;
    while place < table.used {
        let entry = table.entries[place];
        if entry.worker != 0 || exists(entry.database) {
            place += 1;
        } else {
            table.used -= 1;
            let last = table.used;
            table.entries[place] = table.entries[last];
        }
    }
}

/// Sets what is known of a database, and wakes the launcher.
pub fn set(database: Oid, state: State) {
    if let Some(entry) = TABLE.exclusive().entry(database) {
        entry.state = state;
        entry.changes = entry.changes.wrapping_add(1);
    }
    wake_launcher();
}

/// How often somebody has set what is known of a database.
pub fn changes(database: Oid) -> u32 {
    TABLE.exclusive().entry(database).map_or(0, |entry| entry.changes)
}

/// A database has no extension, unless somebody has said something else since `changes` were counted.
pub fn set_absent(database: Oid, changes: u32) {
    if let Some(entry) = TABLE.exclusive().entry(database).filter(|entry| entry.changes == changes) {
        entry.state = State::Absent;
    }
}

/// A database has the extension, and its worker begins. Not where somebody has stopped it meanwhile.
pub fn begin_serving(database: Oid) -> bool {
    let mut table = TABLE.exclusive();
    match table.entry(database) {
        Some(entry) if entry.state == State::Stopped => false,
        Some(entry) => {
            entry.state = State::Present;
            true
        }
        None => true,
    }
}

/// This process is the worker of a database, or ends being that.
pub fn set_worker(database: Oid, begins: bool) {
    if let Some(entry) = TABLE.exclusive().entry(database) {
        if begins {
            entry.worker = own_process();
        } else if entry.worker == own_process() {
            entry.worker = 0;
        }
    }
    wake_launcher();
}

/// Has the launcher look what has changed.
pub fn wake_launcher() {
    let launcher = TABLE.share().launcher;
    if launcher == 0 {
        return;
    }
    // SAFETY: a process that is gone is not found; a latch may be set without need.
    unsafe {
        let process = pg_sys::BackendPidGetProc(launcher);
        if !process.is_null() {
            pg_sys::SetLatch(&raw mut (*process).procLatch);
        }
    }
}

fn own_process() -> i32 {
    server::process_id() as i32
}
