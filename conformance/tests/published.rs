//! The tests that awa publishes, chosen and run by `scripts/conformance`; see `build.rs`.

include!(concat!(env!("OUT_DIR"), "/published.rs"));
