//! Jobs in awa's own type, and the three ways to enqueue them in SQL.

use awa_model::queue_storage::shard_for_ordering_key;
use awa_model::{InsertOpts, InsertParams, JobState, UniqueOpts};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};
use tokio_postgres::{Client, Error, GenericClient, Row};

/// One row of what `awa.enqueue_batch` and `awa.enqueue_columns` return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueued {
    /// The job's place in the request, from 1.
    pub ord: i64,
    /// Its id, unless a conflict skipped it.
    pub job_id: Option<i64>,
    /// The job that holds the key of a skipped one.
    pub conflicts_with: Option<i64>,
}

impl From<Row> for Enqueued {
    fn from(row: Row) -> Self {
        Self { ord: row.get("ord"), job_id: row.get("job_id"), conflicts_with: row.get("conflicts_with") }
    }
}

/// A job with awa's defaults.
pub fn job(kind: &str, args: Value) -> InsertParams {
    job_with(kind, args, InsertOpts::default())
}

/// A job with options.
pub fn job_with(kind: &str, args: Value, opts: InsertOpts) -> InsertParams {
    InsertParams { kind: kind.to_owned(), args, opts }
}

/// An ordering key that takes a job to `shard` of a queue that has `shards`.
pub fn key_of_shard(shard: i16, shards: i16) -> Vec<u8> {
    let mut keys = (0..=u8::MAX).map(|n| vec![n]);
    keys.find(|key| shard_for_ordering_key(key, shards) == shard).expect("every shard has a key of one byte")
}

/// `job` as the object `awa.enqueue_batch` takes, without the keys that hold a default.
pub fn object(job: &InsertParams) -> Value {
    let (opts, defaults) = (&job.opts, InsertOpts::default());
    let mut object = Map::new();
    let mut put = |wanted: bool, key: &str, value: Value| {
        if wanted {
            object.insert(key.to_owned(), value);
        }
    };
    put(true, "kind", json!(job.kind));
    put(job.args != json!({}), "args", job.args.clone());
    put(opts.queue != defaults.queue, "queue", json!(opts.queue));
    put(opts.priority != defaults.priority, "priority", json!(opts.priority));
    put(opts.max_attempts != defaults.max_attempts, "max_attempts", json!(opts.max_attempts));
    put(opts.run_at.is_some(), "run_at", json!(opts.run_at.map(|t| t.to_rfc3339())));
    put(opts.metadata != json!({}), "metadata", opts.metadata.clone());
    put(!opts.tags.is_empty(), "tags", json!(opts.tags));
    put(opts.unique.is_some(), "unique", uniqueness(opts.unique.as_ref()));
    put(opts.ordering_key.is_some(), "ordering_key", json!(opts.ordering_key.as_deref().map(hex_text)));
    Value::Object(object)
}

/// The options object of `unique` and `uniqueness`, every option spelt out.
pub fn uniqueness(unique: Option<&UniqueOpts>) -> Value {
    let Some(unique) = unique else { return Value::Null };
    let states: Vec<_> = STATES.iter().filter(|s| unique.states & (1 << s.bit_position()) != 0).collect();
    let mut options = json!({"by_queue": unique.by_queue, "by_args": unique.by_args, "states": states});
    if let Some(bucket) = unique.by_period {
        options["by_period"] = json!(bucket);
    }
    options
}

const STATES: [JobState; 8] = [
    JobState::Scheduled,
    JobState::Available,
    JobState::Running,
    JobState::Completed,
    JobState::Retryable,
    JobState::Failed,
    JobState::Cancelled,
    JobState::WaitingExternal,
];

fn hex_text(bytes: &[u8]) -> String {
    format!("\\x{}", hex::encode(bytes))
}

/// `awa.enqueue_batch` with the default conflict policy.
///
/// # Panics
/// When the server refuses; see [`try_enqueue_batch`].
pub async fn enqueue_batch(client: &Client, jobs: &[InsertParams]) -> Vec<Enqueued> {
    try_enqueue_batch(client, jobs, "error").await.expect("awa.enqueue_batch")
}

/// `awa.enqueue_batch` on a connection or in a transaction.
pub async fn try_enqueue_batch(
    client: &impl GenericClient,
    jobs: &[InsertParams],
    on_conflict: &str,
) -> Result<Vec<Enqueued>, Error> {
    let objects: Value = jobs.iter().map(object).collect();
    let sql = "SELECT ord, job_id, conflicts_with FROM awa.enqueue_batch($1::jsonb, $2)";
    let rows = client.query(sql, &[&objects, &on_conflict]).await?;
    Ok(rows.into_iter().map(Enqueued::from).collect())
}

/// `awa.enqueue_columns` with every array at full length; unique keys are precomputed by awa's client.
///
/// # Panics
/// When the server refuses; see [`try_enqueue_columns`].
pub async fn enqueue_columns(client: &Client, jobs: &[InsertParams]) -> Vec<Enqueued> {
    try_enqueue_columns(client, jobs, "error").await.expect("awa.enqueue_columns")
}

/// `awa.enqueue_columns` on a connection or in a transaction.
pub async fn try_enqueue_columns(
    client: &impl GenericClient,
    jobs: &[InsertParams],
    on_conflict: &str,
) -> Result<Vec<Enqueued>, Error> {
    let prepared: Vec<_> = jobs
        .iter()
        .map(|j| awa_model::prepare_raw_job_insert(j.kind.clone(), j.args.clone(), j.opts.clone()).expect("a valid job"))
        .collect();
    let kind: Vec<&str> = prepared.iter().map(|p| p.kind()).collect();
    let args: Vec<&Value> = prepared.iter().map(|p| p.args()).collect();
    let queue: Vec<&str> = prepared.iter().map(|p| p.queue()).collect();
    let priority: Vec<i16> = prepared.iter().map(|p| p.priority()).collect();
    let max_attempts: Vec<i16> = prepared.iter().map(|p| p.max_attempts()).collect();
    let run_at: Vec<Option<DateTime<Utc>>> = prepared.iter().map(|p| p.run_at()).collect();
    let metadata: Vec<&Value> = prepared.iter().map(|p| p.metadata()).collect();
    let tags: Vec<Value> = prepared.iter().map(|p| json!(p.tags())).collect();
    let unique_key: Vec<Option<&[u8]>> = prepared.iter().map(|p| p.unique_key()).collect();
    let unique_states: Vec<Option<&str>> = prepared.iter().map(|p| p.unique_states_bit_string()).collect();
    let ordering_key: Vec<Option<&[u8]>> = prepared.iter().map(|p| p.ordering_key()).collect();
    let sql = "SELECT ord, job_id, conflicts_with FROM awa.enqueue_columns(kind => $1, args => $2::jsonb[], queue => $3, \
               priority => $4::smallint[], max_attempts => $5::smallint[], run_at => $6, metadata => $7, tags => $8, unique_key => $9, \
               unique_states => $10, ordering_key => $11, on_conflict => $12)";
    let rows = client
        .query(
            sql,
            &[
                &kind,
                &args,
                &queue,
                &priority,
                &max_attempts,
                &run_at,
                &metadata,
                &tags,
                &unique_key,
                &unique_states,
                &ordering_key,
                &on_conflict,
            ],
        )
        .await?;
    Ok(rows.into_iter().map(Enqueued::from).collect())
}

/// `awa.enqueue`, one call for one job, returning its id.
///
/// # Panics
/// When the server refuses; see [`try_enqueue`].
pub async fn enqueue(client: &Client, job: &InsertParams) -> i64 {
    try_enqueue(client, job).await.expect("awa.enqueue")
}

/// `awa.enqueue` on a connection or in a transaction.
pub async fn try_enqueue(client: &impl GenericClient, job: &InsertParams) -> Result<i64, Error> {
    let opts = &job.opts;
    let unique = opts.unique.as_ref().map(|u| uniqueness(Some(u)));
    let ordering_key = opts.ordering_key.as_deref().map(hex_text);
    let sql = "SELECT awa.enqueue(kind => $1, args => $2, queue => $3, priority => $4::smallint, \
               max_attempts => $5::smallint, run_at => $6, metadata => $7, tags => $8, uniqueness => $9::jsonb, ordering_key => $10)";
    let row = client
        .query_one(
            sql,
            &[
                &job.kind,
                &job.args,
                &opts.queue,
                &opts.priority,
                &opts.max_attempts,
                &opts.run_at,
                &opts.metadata,
                &opts.tags,
                &unique,
                &ordering_key,
            ],
        )
        .await?;
    Ok(row.get(0))
}
