//! Everything about a job that needs no PostgreSQL: reading `jsonb` bytes, decoding job objects, validating them, fingerprinting
//! unique keys, and routing jobs to stripes, shards and lanes.
//!
//! Nothing here imports pgrx, so it is tested in milliseconds and can be fuzzed. The extension crate adds the server: it hands in
//! bytes and takes out [`job::Job`]s, [`lanes::Lanes`] and [`error::Error`]s.
#![forbid(unsafe_code)]

mod closest;
pub mod column;
pub mod csv;
pub mod decode;
pub mod error;
pub mod ingest_stats;
pub mod job;
pub mod jsonb;
pub mod lanes;
pub mod outcome;
pub mod record;
pub mod route;
pub mod transition;
pub mod unique;
pub mod workable;
