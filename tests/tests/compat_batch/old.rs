//! A producer as unmodified awa has it: its own PL/pgSQL function, kept under another name before it was replaced.

use std::sync::Arc;

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Db, Template};
use tokio_postgres::{Client, Error};

use crate::attach;

/// The function with everything but its schema as awa defines it.
const KEEP: &str = "CREATE SCHEMA awa_original;
    DO $$ BEGIN
        EXECUTE replace(pg_get_functiondef('awa.insert_job_compat'::regproc),
                        'FUNCTION awa.insert_job_compat(', 'FUNCTION awa_original.insert_job_compat(');
    END $$";

/// Keeps awa's function. Before attaching.
pub async fn keep_original(db: &Db) {
    db.connect().await.batch_execute(KEEP).await.expect(KEEP);
}

/// An attached database where awa's own function can still be called.
pub async fn attached_with_original(cluster: Option<Arc<awa_ingest_tests::Cluster>>) -> Db {
    let db = match cluster {
        Some(cluster) => Db::on(cluster, Template::Awa).await,
        None => Db::awa().await,
    };
    keep_original(&db).await;
    attach(db).await
}

/// One job through awa's own function; its row of `awa.jobs`.
pub async fn insert_original(client: &Client, row: &Row) -> Result<serde_json::Value, Error> {
    insert(client, "awa_original", row).await
}

/// One job through `schema.insert_job_compat`, with the casts of awa's clients.
pub async fn insert(client: &Client, schema: &str, row: &Row) -> Result<serde_json::Value, Error> {
    let sql = format!(
        "SELECT to_jsonb(job) FROM {schema}.insert_job_compat($1, $2, $3, $4::text::awa.job_state, $5, $6, $7, $8, $9, $10,
             $11::text::bit(8), $12) AS job"
    );
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 12] = [
        &row.kind,
        &row.queue,
        &row.args,
        &row.state,
        &row.priority,
        &row.max_attempts,
        &row.run_at,
        &row.metadata,
        &row.tags,
        &row.unique_key,
        &row.unique_states,
        &row.ordering_key,
    ];
    Ok(client.query_one(&sql, &parameters).await?.get(0))
}

/// The same in a savepoint of its own, as `insert_many_copy` does: no row if the key is taken.
pub async fn insert_original_or_skip(client: &Client, row: &Row) -> Result<Option<i64>, Error> {
    client.batch_execute("SAVEPOINT awa_copy_unique_row").await?;
    let result = insert_original(client, row).await;
    let taken = result.as_ref().is_err_and(|error| error.code().is_some_and(|code| code.code() == "23505"));
    if result.is_err() {
        client.batch_execute("ROLLBACK TO SAVEPOINT awa_copy_unique_row").await?;
    }
    client.batch_execute("RELEASE SAVEPOINT awa_copy_unique_row").await?;
    if taken { Ok(None) } else { result.map(|job| job["id"].as_i64()) }
}
