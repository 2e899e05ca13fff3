//! Jobs as rows of `awa.ingest`, in COPY's three formats, and COPY itself.

use std::pin::pin;

use awa_model::{InsertParams, prepare_raw_job_insert};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::SinkExt;
use serde_json::{Map, Value, json};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient};

use crate::jobs::{self, Enqueued};

/// The columns of `awa.ingest` that can be written, in their order there.
pub const COLUMNS: [&str; 13] = [
    "kind",
    "queue",
    "args",
    "state",
    "priority",
    "max_attempts",
    "run_at",
    "metadata",
    "tags",
    "unique_key",
    "unique_states",
    "ordering_key",
    "uniqueness",
];

const TYPES: [Type; 13] = [
    Type::TEXT,
    Type::TEXT,
    Type::JSONB,
    Type::TEXT,
    Type::INT2,
    Type::INT2,
    Type::TIMESTAMPTZ,
    Type::JSONB,
    Type::TEXT_ARRAY,
    Type::BYTEA,
    Type::TEXT,
    Type::BYTEA,
    Type::JSONB,
];

/// What awa's clients write for NULL.
pub const NULL: &str = "__AWA_NULL__";

/// A format of COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tabs and backslashes.
    Text,
    /// With the null string of awa's clients.
    Csv,
    /// Values as the types send them.
    Binary,
}

impl Format {
    /// All three, for tests that loop.
    pub const ALL: [Self; 3] = [Self::Text, Self::Csv, Self::Binary];

    fn options(self) -> &'static str {
        match self {
            Self::Text => "FORMAT text",
            Self::Csv => "FORMAT csv, NULL '__AWA_NULL__'",
            Self::Binary => "FORMAT binary",
        }
    }
}

/// A job as the columns of `awa.ingest` hold it; `None` is NULL.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Row {
    pub kind: Option<String>,
    pub queue: Option<String>,
    pub args: Option<Value>,
    pub state: Option<String>,
    pub priority: Option<i16>,
    pub max_attempts: Option<i16>,
    pub run_at: Option<DateTime<Utc>>,
    pub metadata: Option<Value>,
    pub tags: Option<Vec<String>>,
    pub unique_key: Option<Vec<u8>>,
    pub unique_states: Option<String>,
    pub ordering_key: Option<Vec<u8>>,
    pub uniqueness: Option<Value>,
}

impl Row {
    /// A row with a kind and arguments.
    pub fn new(kind: &str, args: Value) -> Self {
        Self { kind: Some(kind.to_owned()), args: Some(args), ..Self::default() }
    }

    /// A job with its unique key computed by awa's client, as awa's own COPY sends it: no value is left to the defaults but run_at.
    pub fn prepared(job: &InsertParams) -> Self {
        let job = prepare_raw_job_insert(job.kind.clone(), job.args.clone(), job.opts.clone()).expect("a valid job");
        Self {
            kind: Some(job.kind().to_owned()),
            queue: Some(job.queue().to_owned()),
            args: Some(job.args().clone()),
            state: Some(job.state_db_str().to_owned()),
            priority: Some(job.priority()),
            max_attempts: Some(job.max_attempts()),
            run_at: job.run_at(),
            metadata: Some(job.metadata().clone()),
            tags: Some(job.tags().to_vec()),
            unique_key: job.unique_key().map(<[u8]>::to_vec),
            unique_states: job.unique_states_bit_string().map(str::to_owned),
            ordering_key: job.ordering_key().map(<[u8]>::to_vec),
            uniqueness: None,
        }
    }

    /// A job with its options for uniqueness, for the server to compute the key.
    pub fn described(job: &InsertParams) -> Self {
        let uniqueness = job.opts.unique.as_ref().map(|unique| jobs::uniqueness(Some(unique)));
        Self { unique_key: None, unique_states: None, uniqueness, ..Self::prepared(job) }
    }

    /// The text of every column, as a type's input function reads it.
    pub fn fields(&self) -> [Option<String>; 13] {
        let json = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        let hex = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| format!("\\x{}", hex::encode(bytes)));
        [
            self.kind.clone(),
            self.queue.clone(),
            json(&self.args),
            self.state.clone(),
            self.priority.map(|n| n.to_string()),
            self.max_attempts.map(|n| n.to_string()),
            self.run_at.map(|time| time.to_rfc3339()),
            json(&self.metadata),
            self.tags.as_deref().map(array_literal),
            hex(&self.unique_key),
            self.unique_states.clone(),
            hex(&self.ordering_key),
            json(&self.uniqueness),
        ]
    }

    /// The job object that `awa.enqueue_batch` takes.
    pub fn object(&self) -> Value {
        let mut object = Map::new();
        let [_, _, _, _, _, _, run_at, _, _, unique_key, _, ordering_key, _] = self.fields();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                object.insert(key.to_owned(), value);
            }
        };
        put("kind", json!(self.kind));
        put("queue", json!(self.queue));
        put("state", json!(self.state));
        put("priority", json!(self.priority));
        put("max_attempts", json!(self.max_attempts));
        put("run_at", json!(run_at));
        put("metadata", json!(self.metadata));
        put("tags", json!(self.tags));
        put("unique_key", json!(unique_key));
        put("unique_states", json!(self.unique_states));
        put("ordering_key", json!(ordering_key));
        put("unique", json!(self.uniqueness));
        // A JSON null is no absent value here.
        if let Some(args) = &self.args {
            object.insert("args".to_owned(), args.clone());
        }
        Value::Object(object)
    }

    fn values(&self) -> [&(dyn ToSql + Sync); 13] {
        [
            &self.kind,
            &self.queue,
            &self.args,
            &self.state,
            &self.priority,
            &self.max_attempts,
            &self.run_at,
            &self.metadata,
            &self.tags,
            &self.unique_key,
            &self.unique_states,
            &self.ordering_key,
            &self.uniqueness,
        ]
    }
}

/// A `text[]` literal, every element quoted.
pub fn array_literal(elements: &[String]) -> String {
    let quoted: Vec<String> =
        elements.iter().map(|element| format!("\"{}\"", element.replace('\\', "\\\\").replace('"', "\\\""))).collect();
    format!("{{{}}}", quoted.join(","))
}

/// All columns of `rows` as CSV with [`NULL`], every value quoted.
pub fn csv(rows: &[Row]) -> Vec<u8> {
    let quoted =
        |field: Option<String>| field.map_or_else(|| NULL.to_owned(), |value| format!("\"{}\"", value.replace('"', "\"\"")));
    lines(rows, ",", quoted)
}

/// The same under a header line.
pub fn csv_with_header(rows: &[Row]) -> Vec<u8> {
    let header = COLUMNS.join(",") + "\n";
    [header.into_bytes(), csv(rows)].concat()
}

/// All columns of `rows` as COPY's text format has them.
pub fn text(rows: &[Row]) -> Vec<u8> {
    let escaped = |field: Option<String>| {
        let escape = |value: String| value.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r");
        field.map_or_else(|| "\\N".to_owned(), escape)
    };
    lines(rows, "\t", escaped)
}

fn lines(rows: &[Row], delimiter: &str, field: impl Fn(Option<String>) -> String) -> Vec<u8> {
    rows.iter().map(|row| row.fields().map(&field).join(delimiter) + "\n").collect::<String>().into_bytes()
}

/// A `COPY … FROM STDIN` of `bytes`; returns how many rows the server says it read. If it is refused before the first byte, for want of a
/// privilege for example, the connection is of no use afterwards: tokio-postgres then sends one Sync too many.
pub async fn copy_in(client: &Client, statement: &str, bytes: impl Into<Bytes>) -> Result<u64, Error> {
    let mut sink = pin!(client.copy_in(statement).await?);
    sink.send(bytes.into()).await?;
    sink.finish().await
}

/// A COPY of all columns of `rows` into `table`.
pub async fn copy_rows(client: &Client, table: &str, format: Format, rows: &[Row]) -> Result<u64, Error> {
    let statement = format!("COPY {table} ({}) FROM STDIN WITH ({})", COLUMNS.join(", "), format.options());
    match format {
        Format::Text => copy_in(client, &statement, text(rows)).await,
        Format::Csv => copy_in(client, &statement, csv(rows)).await,
        Format::Binary => {
            let mut writer = pin!(BinaryCopyInWriter::new(client.copy_in(&statement).await?, &TYPES));
            for row in rows {
                writer.as_mut().write(&row.values()).await?;
            }
            writer.finish().await
        }
    }
}

/// A CSV COPY of one or a few columns into `table`, a line a job.
pub async fn copy_csv(client: &Client, table: &str, columns: &str, csv: &str) -> Result<u64, Error> {
    let statement = format!("COPY {table} ({columns}) FROM STDIN WITH (FORMAT csv, NULL '__AWA_NULL__')");
    copy_in(client, &statement, csv.to_owned()).await
}

/// What `awa.last_ingest()` says of this session.
pub async fn last_ingest(client: &impl GenericClient) -> Vec<Enqueued> {
    let sql = "SELECT ord, job_id, conflicts_with FROM awa.last_ingest()";
    client.query(sql, &[]).await.expect(sql).into_iter().map(Enqueued::from).collect()
}

/// The row of `awa.last_ingest_summary()` without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Summary {
    pub rows: i64,
    pub enqueued: i64,
    pub skipped: i64,
    pub deferred: i64,
    pub lanes: i32,
    /// As PostgreSQL prints a multirange.
    pub job_ids: Option<String>,
}

/// What `awa.last_ingest_summary()` says of this session, if anything.
///
/// # Panics
/// When there is more than one row, or a time that cannot be.
pub async fn last_summary(client: &impl GenericClient) -> Option<Summary> {
    let sql = "SELECT rows, enqueued, skipped, deferred, lanes, job_ids::text, elapsed >= writing AND writing >= '0'
                   AND lane_lock_wait >= '0' AND lane_hold >= '0' AND elapsed >= lane_hold AS likely
                 FROM awa.last_ingest_summary()";
    let row = client.query_opt(sql, &[]).await.expect(sql)?;
    assert_eq!(row.get::<_, Option<bool>>("likely"), Some(true), "times that add up");
    Some(Summary {
        rows: row.get("rows"),
        enqueued: row.get("enqueued"),
        skipped: row.get("skipped"),
        deferred: row.get("deferred"),
        lanes: row.get("lanes"),
        job_ids: row.get("job_ids"),
    })
}
