//! Lanes and the ring: who makes them, who waits for whom, and which job goes where.

mod concurrency;
mod creation;
mod isolation;
mod locks;
mod provision;
mod stale_catalog;
mod stripes;
