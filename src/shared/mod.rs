//! What all sessions of the server share. It exists only where the server loads the library when it starts.

pub mod ingest_stats;

/// Asks for the memory, while the server starts.
pub fn register() {
    ingest_stats::register();
}

/// Whether there is any.
pub fn is_there() -> bool {
    ingest_stats::is_there()
}
