//! Harness of the integration tests: a private server, fresh databases, real awa workers, and assertions.
//!
//! A test asks for a database and talks to it as any client would:
//!
//! ```no_run
//! use awa_ingest_tests::{Db, failure, jobs};
//! # async fn test() {
//! let db = Db::awa().await;
//! let client = db.connect().await;
//! jobs::enqueue_batch(&client, &[jobs::job("send_email", serde_json::json!({"to": "a@example.com"}))]).await;
//!
//! let refused = failure(client.execute("SELECT awa.enqueue(repeat('k', 201))", &[]).await);
//! assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23514", "kind_length"));
//! # }
//! ```
//!
//! The server comes from the folder in the environment variable `AWA_INGEST_PG_BIN` (see [`Cluster`]), runs once for a
//! test binary, and ends with it. Its data is in a folder for temporary files, or in the one that `AWA_INGEST_TEST_FOLDER` names:
//! a database has a thousand files, so that memory is the place (`scripts/test` sees to it).
//!
//! A test binary is a folder in `tests/tests` with a module for each topic, since linking one takes seconds. Tests share the server
//! with the others of their binary, two and more at a time: what concerns the whole server (roles, `pg_locks`, the log, settings)
//! is either told apart by the database's name, as [`Db::role`] does, or has a [`Cluster`] of its own.

mod cluster;
pub mod copy;
mod db;
mod error;
pub mod jobs;
mod lanes;
mod os;
mod session;
mod snapshot;
mod storage;
mod stored;
mod tap;
mod wait;
mod worker;

pub use cluster::Cluster;
pub use db::{Db, Notifications, Template};
pub use error::{Failure, failure};
pub use lanes::assert_lanes_intact;
pub use session::{OpenCopy, Session};
pub use snapshot::{assert_same_rows, rows};
pub use storage::Storage;
pub use stored::{Stored, assert_nothing_stored, stored_kinds};
pub use tap::CopyTap;
pub use wait::{DEADLINE, backend_pid, wait_until, wait_until_blocked, within};
pub use worker::{Worker, WorkerBuilder};
