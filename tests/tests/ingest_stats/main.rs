//! `awa_ingest.ingest_stats`: what is counted of every queue, and when.

mod access;
mod table;
mod transactions;
mod waits;
mod ways;

use std::sync::{Arc, OnceLock};

use awa_ingest_tests::{Cluster, Db, Storage, Template, rows};
use serde_json::Value;
use tokio_postgres::Client;

/// What a server needs that counts.
const PRELOADED: (&str, &str) = ("shared_preload_libraries", "awa_ingest");

/// A server for all tests of this program that leave room in its table.
fn server() -> Arc<Cluster> {
    static SERVER: OnceLock<Arc<Cluster>> = OnceLock::new();
    SERVER.get_or_init(|| Cluster::start(&[PRELOADED, ("max_prepared_transactions", "4")])).clone()
}

/// A database of that server.
async fn database(template: Template) -> Db {
    Db::on(server(), template).await
}

fn template(storage: Storage) -> Template {
    match storage {
        Storage::Embedded => Template::Embedded,
        Storage::Attached => Template::Awa,
    }
}

/// Runs statements that must succeed.
#[track_caller]
fn run<'a>(client: &'a Client, statements: &'a str) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let done = client.batch_execute(statements).await;
        done.unwrap_or_else(|error| panic!("{caller}: {statements}: {error:?}"));
    }
}

/// Queue, jobs, batches and conflicts.
type Counted = (Option<String>, i64, i64, i64);

/// What the view shows, by queue; the row without queue comes last.
async fn counted(client: &Client) -> Vec<Counted> {
    let sql = "SELECT queue, jobs, batches, conflicts FROM awa_ingest.ingest_stats ORDER BY queue COLLATE \"C\"";
    let rows = client.query(sql, &[]).await.expect(sql);
    rows.into_iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

/// A row that the view should show.
fn of(queue: &str, jobs: i64, batches: i64, conflicts: i64) -> Counted {
    (Some(queue.to_owned()), jobs, batches, conflicts)
}

/// Fails if the view shows bytes of a queue that are not those of its jobs in `jobs`, a query for `queue`, `kind`, `args`, `payload`
/// and `unique_key`. A value made anew is neither compressed nor short, but has a length word of four bytes.
async fn assert_bytes(client: &Client, jobs: &str, when: &str) {
    let sql = format!(
        "(WITH job AS ({jobs}), expected AS (
           SELECT regexp_replace(queue, '#\\d+$', '') AS queue,
               sum(octet_length(kind) + octet_length(queue) + pg_column_size(args::text::jsonb) - 4
                   + COALESCE(pg_column_size(payload::text::jsonb) - 4, 0) + COALESCE(octet_length(unique_key), 0))::bigint AS bytes
             FROM job GROUP BY 1)
         SELECT queue, expected.bytes AS expected, stats.bytes AS counted
           FROM expected FULL JOIN awa_ingest.ingest_stats AS stats USING (queue)
          WHERE expected.bytes IS DISTINCT FROM stats.bytes AND (expected.bytes, stats.bytes) IS DISTINCT FROM (NULL, 0))"
    );
    assert_eq!(rows(client, &sql, &[]).await, [] as [Value; 0], "{when}");
}
