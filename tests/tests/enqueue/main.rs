//! Jobs by `awa.enqueue`, `enqueue_batch`, `enqueue_columns` and `enqueue_csv`: what goes in, what comes back, and what is refused.

mod cancel;
mod csv_errors;
mod csv_input;
mod direct_path;
mod errors;
mod hidden_claims;
mod inputs;
mod lastval;
mod notify;
mod results;
mod savepoints;
mod typing;
mod unique_claims;
mod unique_conflicts;
mod unique_keys;
mod unique_races;
