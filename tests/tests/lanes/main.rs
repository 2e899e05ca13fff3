//! Lanes and the ring: who makes them, who waits for whom, and which job goes where.

mod behind;
mod cancelled;
mod concurrency;
mod creation;
mod gaps;
mod isolation;
mod locks;
mod lost;
mod operator;
mod problems;
mod provision;
mod repair;
mod sequences;
mod stale_catalog;
mod states;
mod stripes;
mod within;
