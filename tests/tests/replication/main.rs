//! Logical replication: the extension never stops a subscription, its tables can be copied, and upkeep leaves replicated tables alone.

mod copy;
mod debezium;
mod support;
mod switchover;
mod upkeep;
