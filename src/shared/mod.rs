//! What the processes of a server share, where the library is preloaded.

pub mod databases;

use std::sync::atomic::{AtomicBool, Ordering};

/// Set in the postmaster, whose processes inherit it.
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Asks for the memory. To be called while the server preloads libraries.
pub fn register() {
    PRELOADED.store(true, Ordering::Relaxed);
    databases::register();
}

/// Whether the library was preloaded: there is shared memory, and a launcher.
pub fn is_there() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}
