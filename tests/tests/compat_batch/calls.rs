//! The ways to enqueue a batch, so that a rule is tested once for each.

use awa_ingest_tests::copy::{Format, Row, copy_rows, csv_with_header, last_ingest};
use awa_ingest_tests::jobs::Enqueued;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tokio_postgres::{Client, Error};

/// A way to enqueue a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Batch,
    Columns,
    Csv,
    Copy,
    Insert,
    /// `INSERT … ON CONFLICT DO NOTHING` into the table that does not skip by itself.
    OnConflict,
    /// Whose outcomes are looked at row by row.
    Returning,
    CompatBatch,
    SkipUnique,
}

impl Way {
    /// Those that never raise 40P01 when they skip. (`RETURNING` takes its keys row by row, and may.)
    pub const SKIPPING: [Self; 8] =
        [Self::Batch, Self::Columns, Self::Csv, Self::Copy, Self::Insert, Self::OnConflict, Self::CompatBatch, Self::SkipUnique];

    /// Those that know the error policy.
    pub const RAISING: [Self; 7] =
        [Self::Batch, Self::Columns, Self::Csv, Self::Copy, Self::Insert, Self::Returning, Self::CompatBatch];

    /// Enqueues `rows`, leaving out those whose keys are taken. Returns what became of each: its id if it was enqueued.
    pub async fn skip(self, client: &Client, rows: &[Row]) -> Result<Vec<Option<i64>>, Error> {
        self.run(client, rows, "skip").await
    }

    /// Enqueues `rows`, all or none.
    pub async fn enqueue(self, client: &Client, rows: &[Row]) -> Result<Vec<Option<i64>>, Error> {
        self.run(client, rows, "error").await
    }

    async fn run(self, client: &Client, rows: &[Row], policy: &str) -> Result<Vec<Option<i64>>, Error> {
        let table = if policy == "skip" { "awa.ingest_skip_conflicts" } else { "awa.ingest" };
        let enqueued = match self {
            Self::Batch => batch(client, rows, policy).await?,
            Self::Columns => columns(client, rows, policy).await?,
            Self::Csv => csv(client, rows, policy).await?,
            Self::Copy => {
                copy_rows(client, table, Format::Csv, rows).await?;
                last_ingest(client).await
            }
            Self::Insert => {
                insert(client, table, rows, "").await?;
                last_ingest(client).await
            }
            Self::OnConflict => {
                insert(client, "awa.ingest", rows, "ON CONFLICT DO NOTHING").await?;
                last_ingest(client).await
            }
            Self::Returning => return Ok(match_up(rows, insert(client, table, rows, "RETURNING job_id AS id, args").await?)),
            Self::CompatBatch => return Ok(match_jobs(rows, &compat_batch(client, rows, policy == "skip").await?)),
            Self::SkipUnique => return Ok(match_jobs(rows, &skip_unique(client, rows).await?)),
        };
        assert_eq!(enqueued.iter().map(|row| row.ord).collect::<Vec<_>>(), (1..=rows.len() as i64).collect::<Vec<_>>());
        Ok(enqueued.iter().map(|row| row.job_id).collect())
    }
}

async fn enqueued(
    client: &Client,
    sql: &str,
    parameters: &[&(dyn tokio_postgres::types::ToSql + Sync)],
) -> Result<Vec<Enqueued>, Error> {
    Ok(client.query(sql, parameters).await?.into_iter().map(Enqueued::from).collect())
}

fn objects(rows: &[Row]) -> Value {
    rows.iter().map(Row::object).collect()
}

async fn batch(client: &Client, rows: &[Row], policy: &str) -> Result<Vec<Enqueued>, Error> {
    enqueued(client, "SELECT * FROM awa.enqueue_batch($1::jsonb, $2)", &[&objects(rows), &policy]).await
}

async fn csv(client: &Client, rows: &[Row], policy: &str) -> Result<Vec<Enqueued>, Error> {
    let text = String::from_utf8(csv_with_header(rows)).expect("text");
    enqueued(client, "SELECT * FROM awa.enqueue_csv($1::text, $2)", &[&text, &policy]).await
}

/// Without states, which `enqueue_columns` does not take: a job with a time is scheduled.
async fn columns(client: &Client, rows: &[Row], policy: &str) -> Result<Vec<Enqueued>, Error> {
    let arrays = Arrays::of(rows);
    let sql =
        "SELECT * FROM awa.enqueue_columns($1, $2::jsonb[], $3, $4::smallint[], $5::smallint[], $6, $7, $8, $9, $10, $11, $12)";
    let a = &arrays;
    enqueued(
        client,
        sql,
        &[
            &a.kind,
            &a.args,
            &a.queue,
            &a.priority,
            &a.max_attempts,
            &a.run_at,
            &a.metadata,
            &a.tags,
            &a.unique_key,
            &a.unique_states,
            &a.ordering_key,
            &policy,
        ],
    )
    .await
}

async fn insert(client: &Client, table: &str, rows: &[Row], clause: &str) -> Result<Vec<tokio_postgres::Row>, Error> {
    let columns =
        "kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states, ordering_key";
    let sql = format!(
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM jsonb_to_recordset($1) AS source (kind text, queue text, args jsonb,
             state text, priority smallint, max_attempts smallint, run_at timestamptz, metadata jsonb, tags text[], unique_key bytea,
             unique_states text, ordering_key bytea) {clause}"
    );
    client.query(&sql, &[&objects(rows)]).await
}

/// The arguments of the functions that take arrays, each at full length.
pub struct Arrays<'a> {
    pub kind: Vec<Option<&'a str>>,
    pub queue: Vec<Option<&'a str>>,
    pub args: Vec<Option<&'a Value>>,
    pub state: Vec<Option<&'a str>>,
    pub priority: Vec<Option<i16>>,
    pub max_attempts: Vec<Option<i16>>,
    pub run_at: Vec<Option<DateTime<Utc>>>,
    pub metadata: Vec<Option<&'a Value>>,
    pub tags: Vec<Option<Value>>,
    pub unique_key: Vec<Option<&'a [u8]>>,
    pub unique_states: Vec<Option<&'a str>>,
    pub ordering_key: Vec<Option<&'a [u8]>>,
}

impl<'a> Arrays<'a> {
    pub fn of(rows: &'a [Row]) -> Self {
        Self {
            kind: rows.iter().map(|row| row.kind.as_deref()).collect(),
            queue: rows.iter().map(|row| row.queue.as_deref()).collect(),
            args: rows.iter().map(|row| row.args.as_ref()).collect(),
            state: rows.iter().map(|row| row.state.as_deref()).collect(),
            priority: rows.iter().map(|row| row.priority).collect(),
            max_attempts: rows.iter().map(|row| row.max_attempts).collect(),
            run_at: rows.iter().map(|row| row.run_at).collect(),
            metadata: rows.iter().map(|row| row.metadata.as_ref()).collect(),
            tags: rows.iter().map(|row| row.tags.as_ref().map(|tags| json!(tags))).collect(),
            unique_key: rows.iter().map(|row| row.unique_key.as_deref()).collect(),
            unique_states: rows.iter().map(|row| row.unique_states.as_deref()).collect(),
            ordering_key: rows.iter().map(|row| row.ordering_key.as_deref()).collect(),
        }
    }
}

/// `awa_ingest.insert_jobs_compat_batch` with all arrays: the rows of `awa.jobs` that it returns, in its order.
pub async fn compat_batch(client: &Client, rows: &[Row], skip: bool) -> Result<Vec<Value>, Error> {
    let sql = "SELECT to_jsonb(job) FROM awa_ingest.insert_jobs_compat_batch(kind => $1, queue => $2, args => $3, state => $4,
        priority => $5, max_attempts => $6, run_at => $7, metadata => $8, tags => $9, unique_key => $10, unique_states => $11,
        ordering_key => $12, skip_conflicts => $13) AS job";
    let a = Arrays::of(rows);
    let found = client
        .query(
            sql,
            &[
                &a.kind,
                &a.queue,
                &a.args,
                &a.state,
                &a.priority,
                &a.max_attempts,
                &a.run_at,
                &a.metadata,
                &a.tags,
                &a.unique_key,
                &a.unique_states,
                &a.ordering_key,
                &skip,
            ],
        )
        .await?;
    Ok(found.iter().map(|row| row.get(0)).collect())
}

/// `awa_ingest.insert_many_skip_unique_conflicts`: the rows that it returns, in its order.
pub async fn skip_unique(client: &Client, rows: &[Row]) -> Result<Vec<Value>, Error> {
    let sql = "SELECT to_jsonb(job) FROM awa_ingest.insert_many_skip_unique_conflicts($1) AS job";
    Ok(client.query(sql, &[&objects(rows)]).await?.iter().map(|row| row.get(0)).collect())
}

/// `awa_ingest.last_ingest_jobs()`.
pub async fn last_jobs(client: &Client) -> Result<Vec<Value>, Error> {
    let sql = "SELECT to_jsonb(job) FROM awa_ingest.last_ingest_jobs() AS job";
    Ok(client.query(sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

/// What `awa.jobs` shows of the jobs with these ids, in their order; but for no errors an empty array, as awa's function returns it.
pub async fn shown(client: &Client, ids: &[i64]) -> Vec<Value> {
    let sql = "SELECT to_jsonb(job) || jsonb_build_object('errors', coalesce(job.errors, '{}')) FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (id, ord) JOIN awa.jobs AS job USING (id) ORDER BY ord";
    client.query(sql, &[&ids]).await.expect(sql).iter().map(|row| row.get(0)).collect()
}

/// The ids of such rows.
pub fn ids(jobs: &[Value]) -> Vec<i64> {
    jobs.iter().map(|job| job["id"].as_i64().expect("an id")).collect()
}

fn match_jobs(rows: &[Row], jobs: &[Value]) -> Vec<Option<i64>> {
    outcomes(rows, jobs.iter().map(|job| (job["id"].as_i64().expect("an id"), job["args"].clone())).collect())
}

fn match_up(rows: &[Row], returned: Vec<tokio_postgres::Row>) -> Vec<Option<i64>> {
    outcomes(rows, returned.iter().map(|row| (row.get("id"), row.get("args"))).collect())
}

/// What came back, put beside what was sent by its args, which are different for each job. It comes back in input order.
fn outcomes(rows: &[Row], returned: Vec<(i64, Value)>) -> Vec<Option<i64>> {
    let mut returned = returned.into_iter().peekable();
    let outcomes = rows.iter().map(|row| returned.next_if(|(_, args)| Some(args) == row.args.as_ref()).map(|(id, _)| id)).collect();
    assert_eq!(returned.next(), None, "a row that was not sent, or in another order than the input's");
    outcomes
}

/// A job for `queue`, told apart by `n`.
pub fn plain(queue: &str, n: i64) -> Row {
    Row { queue: Some(queue.to_owned()), ..Row::new("step", json!({"n": n})) }
}

/// A job that holds a key in all states in which awa's clients have it held.
pub fn keyed(key: u32, queue: &str, n: i64) -> Row {
    with_key(plain(queue, n), key, "11111000")
}

/// A job with a key of four bytes, whose order is that of the numbers.
pub fn with_key(row: Row, key: u32, states: &str) -> Row {
    Row { unique_key: Some(key.to_be_bytes().to_vec()), unique_states: Some(states.to_owned()), ..row }
}

/// The job, due far in the future.
pub fn deferred(row: Row) -> Row {
    let run_at = Some("2041-05-06T07:08:09.000001Z".parse().expect("a time"));
    Row { state: Some("scheduled".to_owned()), run_at, ..row }
}
