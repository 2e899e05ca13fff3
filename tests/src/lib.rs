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
//! test binary, and ends with it.

mod cluster;
pub mod copy;
mod db;
mod error;
pub mod jobs;
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
pub use session::{OpenCopy, Session};
pub use snapshot::{assert_same_rows, rows};
pub use storage::Storage;
pub use stored::{Stored, assert_nothing_stored, stored_kinds};
pub use tap::CopyTap;
pub use wait::{DEADLINE, backend_pid, wait_until, wait_until_blocked, within};
pub use worker::{Worker, WorkerBuilder};
