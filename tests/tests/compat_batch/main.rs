//! awa's unreleased batch functions as the extension has them, the canonical engine, and skipping beside producers that know nothing of it.

mod alternation;
mod batch;
mod batch_rules;
mod calls;
mod canonical;
mod canonical_unique;
mod crossings;
mod flips;
mod last_jobs;
mod mixed;
mod old;
mod privileges;
mod skip;
mod tally;
mod waits;

use awa_ingest_tests::Db;
use tokio_postgres::Client;

/// A database that awa migrated and finalised, with its function replaced.
async fn attached() -> Db {
    attach(Db::awa().await).await
}

async fn attach(db: Db) -> Db {
    db.connect().await.batch_execute("SELECT awa_ingest.attach()").await.expect("attach");
    db
}

/// Takes everything out of the database that a job leaves there, lanes too. Cheaper than another database for each round of a loop.
const EMPTY: &str = "TRUNCATE awa.ready_entries, awa.ready_segments, awa.deferred_jobs, awa.job_unique_claims, awa.queue_lanes,
        awa.queue_enqueue_heads, awa.queue_claim_heads, awa.jobs_hot, awa.scheduled_jobs, awa.admin_dirty_queue_marks,
        awa.admin_dirty_kind_marks, awa.queue_state_counts, awa.job_kind_catalog, awa.job_queue_catalog;
    DO $$ DECLARE lane text; BEGIN
        FOR lane IN SELECT format('awa.%I', relname) FROM pg_class
            WHERE relnamespace = 'awa'::regnamespace AND relkind = 'S' AND relname ~ '^queue_(enqueue|claim)_seq_'
        LOOP EXECUTE 'DROP SEQUENCE ' || lane; END LOOP;
    END $$";

/// A new session, to which the database is new.
async fn emptied(db: &Db) -> Client {
    let client = db.connect().await;
    client.batch_execute(EMPTY).await.expect(EMPTY);
    client
}

/// The columns of `table` that name its jobs, one value a row, in the order of their ids.
async fn numbers(client: &Client, table: &str) -> Vec<i64> {
    let id = if table.ends_with("jobs_hot") || table.ends_with("scheduled_jobs") { "id" } else { "job_id" };
    let sql = format!("SELECT (args->>'n')::bigint FROM {table} ORDER BY {id}");
    client.query(&sql, &[]).await.expect(&sql).iter().map(|row| row.get(0)).collect()
}
