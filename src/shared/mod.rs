//! What the processes of a server share, where the library is preloaded.

pub mod databases;
pub mod ingest_stats;

/// Asks for the memory. To be called while the server preloads libraries.
pub fn register() {
    databases::register();
    ingest_stats::register();
}

/// Whether there is any, and a launcher.
pub fn is_there() -> bool {
    ingest_stats::is_there()
}
