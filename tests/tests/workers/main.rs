//! Background processes: who runs where, and what they let others do.

mod alone;
mod crash;
mod databases;
mod errors;
mod lanes;
mod launcher;
mod prune;
mod quiet;
mod records;
mod rights;
mod standby;
mod statistics;
mod support;
