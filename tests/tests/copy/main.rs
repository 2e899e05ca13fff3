//! COPY and INSERT into the foreign tables.

mod abort;
mod awa_bytes;
mod batched;
mod created;
mod dump;
mod errors;
mod explain;
mod forgotten;
mod formats;
mod insert;
mod options;
mod privileges;
mod shared;
mod skip;
mod slow;
mod storage;
mod tables;
mod transactions;
mod views;
