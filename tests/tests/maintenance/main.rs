//! Maintenance on real databases: the planner's statistics, the prune of awa's rings beside and between awa's own workers, and what
//! both say about it.

mod actor;
mod analyze;
mod beside;
mod between;
mod blocked;
mod blocked_rollup;
mod gates;
mod prune;
mod rings;
mod run;
mod stage;
mod stalled;
mod statistics;
