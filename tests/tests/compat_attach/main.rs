//! The replacement of `awa.insert_job_compat`: put in place, kept and taken away as promised, and in all it does like the original.

mod adopt;
mod adopt_waiting;
mod attach;
mod attacks;
mod awa_client;
mod cases;
mod detach;
mod drop;
mod dump;
mod engine;
mod isolation;
mod migrate;
mod notify;
mod parity;
mod privileges;
mod refusals;
mod rollbacks;
mod setup;
mod statements;
mod status;
