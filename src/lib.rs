//! `awa_ingest`: job batches into the queue storage of awa, from inside the PostgreSQL server.
//!
//! The way of a job: an entry point ([`functions`]) takes the call apart, a decoder of `awa_ingest_core` makes a draft of each job,
//! and [`ingest`] leads the drafts through validation, routing, ids, claims, lanes, ring position, rows and wake-ups. See
//! `docs/design.md`.
#![deny(unsafe_code)]

mod adopt;
mod arguments;
mod attach;
mod authority;
mod batch;
mod before_commit;
mod cancellation;
mod catalog;
mod changes;
mod claims;
mod compat;
mod context;
mod csv;
mod datum;
mod direct;
mod discard;
mod drop_guard;
mod entry;
mod foreign;
mod functions;
mod held;
mod ingest;
mod ingest_stats;
mod input;
mod jobs;
mod json;
mod lane_check;
mod lane_cursors;
mod lane_damage;
mod lane_sequences;
mod lanes;
mod last;
mod leftover_locks;
mod list;
mod maintenance;
mod memory;
mod notify;
mod ownership;
mod pinned;
mod positions;
mod provision;
mod replicated;
mod report;
mod reports;
mod results;
mod ring;
mod row;
mod seen;
mod sequence;
mod server;
mod settings;
mod shared;
mod single;
mod small_table;
mod spi;
mod spool;
mod statements;
mod status;
mod storage;
mod subtransaction;
mod table;
mod workers;
mod write;

use pgrx::prelude::*;

::pgrx::pg_module_magic!(name, version);

extension_sql_file!("../sql/install/schema.sql", name = "schema", bootstrap);
extension_sql_file!("../sql/install/embedded.sql", name = "embedded", requires = ["schema"]);
extension_sql_file!("../sql/install/json_text.sql", name = "json_text", requires = ["embedded"]);
extension_sql_file!("../sql/install/functions.sql", name = "functions", requires = ["json_text"]);
extension_sql_file!("../sql/install/foreign.sql", name = "foreign", requires = ["functions"]);
extension_sql_file!("../sql/install/compat.sql", name = "compat", requires = ["foreign"]);
extension_sql_file!("../sql/install/ingest_stats.sql", name = "ingest_stats", requires = ["compat"]);
extension_sql_file!("../sql/install/lanes.sql", name = "lanes", requires = ["ingest_stats"]);
extension_sql_file!("../sql/install/maintenance.sql", name = "maintenance", requires = ["lanes"]);
extension_sql_file!("../sql/install/replication.sql", name = "replication", requires = ["maintenance"]);
extension_sql_file!("../sql/install/discard.sql", name = "discard", requires = ["replication"]);
extension_sql_file!("../sql/install/grants.sql", name = "grants", requires = ["discard"]);
extension_sql_file!("../sql/install/revokes.sql", name = "revokes", requires = ["grants"]);
extension_sql_file!("../sql/install/drop_guard.sql", name = "drop_guard", requires = ["revokes"]);

/// Runs once a process, when the library is loaded.
#[allow(unsafe_code)]
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    settings::register();
    storage::watch_catalog();
    last::watch_transactions();
    changes::watch();
    before_commit::watch();
    workers::watch_transactions();
    if server::is_preloading() {
        shared::register();
        ingest_stats::watch_transactions();
        workers::register_launcher();
    }
}
