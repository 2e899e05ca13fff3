//! Waiting for something to become true, never for a time to pass.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio_postgres::Client;

/// How long a test waits for anything before it fails. Long, since a busy machine is no fault.
pub const DEADLINE: Duration = Duration::from_secs(300);

const POLL: Duration = Duration::from_millis(5);

/// Polls `condition`, a query that returns one boolean, until it is true; NULL and no row count as false.
///
/// # Panics
/// After [`DEADLINE`], naming the condition.
pub async fn wait_until(client: &Client, condition: &str) {
    let started = Instant::now();
    loop {
        let row = client.query_opt(condition, &[]).await.expect(condition);
        if row.is_some_and(|r| r.get::<_, Option<bool>>(0).unwrap_or(false)) {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "still not true after {DEADLINE:?}: {condition}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until the backend `pid` waits for a lock that another one holds. `observer` must be another session.
pub async fn wait_until_blocked(observer: &Client, pid: i32) {
    wait_until(observer, &format!("SELECT cardinality(pg_blocking_pids({pid})) > 0")).await;
}

/// The process id of the backend behind `client`.
pub async fn backend_pid(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.expect("pg_backend_pid").get(0)
}

/// Awaits `future`, failing the test after [`DEADLINE`] instead of hanging it.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} took longer than {DEADLINE:?}"),
    }
}
