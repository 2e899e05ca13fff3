//! All that an enqueue leaves behind, comparable between databases.

use serde_json::Value;
use tokio_postgres::Client;

use crate::{Storage, assert_same_rows, rows};

/// Jobs by the order of their ids. `{s}` stands for the schema.
const PLACES: &str = "SELECT job_id, row_number() OVER (ORDER BY job_id) AS place
    FROM (SELECT job_id FROM {s}.ready_entries UNION ALL SELECT job_id FROM {s}.deferred_jobs) AS job";

/// Claims are awa's own also where its storage has another schema. `{c}` stands for theirs.
const CLAIMS: &str = "SELECT encode(unique_key, 'hex') AS key, place FROM {c}.job_unique_claims LEFT JOIN places USING (job_id)";

const SEGMENTS: &str = "first_lane_seq, next_lane_seq";
const POSITIONS: &str = "generate_series(first_lane_seq, next_lane_seq - 1) AS lane_seq";

const SEQUENCES: &str = "SELECT sequencename, last_value, start_value, increment_by, cycle, cache_size, sequenceowner
    FROM pg_sequences WHERE schemaname = '{s}' AND sequencename <> 'job_id_seq'";

/// `payload` as awa's batches write it: awa's function for single jobs spells out what is empty.
const COMPACT: &str = "(SELECT jsonb_object_agg(key, value) FROM jsonb_each(payload) WHERE value NOT IN ('{}', '[]', 'null'))";

/// A time, but NULL if it was just the time of the call.
fn given(column: &str) -> String {
    format!("CASE WHEN {column} NOT BETWEEN created_at - interval '5 min' AND created_at + interval '5 min' THEN {column} END")
}

fn jobs(table: &str, payload: &str) -> String {
    format!(
        "SELECT to_jsonb(job) - '{{job_id,run_at,created_at,payload}}'::text[] AS job, job.tableoid::regclass::text AS part, place,
             {payload} AS payload, {} AS run_at FROM {{s}}.{table} AS job JOIN places USING (job_id)",
        given("run_at")
    )
}

fn segments(range: &str) -> String {
    let lane = "ready_slot, ready_generation, queue, priority, enqueue_shard";
    format!("SELECT {lane}, {range}, {} AS run_at FROM {{s}}.ready_segments", given("first_run_at"))
}

/// The rows of every table that an enqueue writes: ids by their order, and times only where they were given.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored(Vec<(&'static str, Vec<Value>)>);

impl Stored {
    /// What the storage holds, as `client` sees it.
    pub async fn read(client: &Client, storage: Storage) -> Self {
        Self::of(client, storage.schema(), "payload", SEGMENTS).await
    }

    /// What it holds, whether it came as a batch or job by job: segments as the positions they cover, and payloads made compact.
    pub async fn read_by_job(client: &Client, storage: Storage) -> Self {
        Self::read_schema_by_job(client, storage.schema()).await
    }

    /// The same of a storage in any schema.
    pub async fn read_schema_by_job(client: &Client, schema: &str) -> Self {
        Self::of(client, schema, COMPACT, POSITIONS).await
    }

    async fn of(client: &Client, schema: &str, payload: &str, range: &str) -> Self {
        let claims = if schema == Storage::Embedded.schema() { schema } else { Storage::Attached.schema() };
        let queries = [
            ("ready_entries", jobs("ready_entries", payload)),
            ("deferred_jobs", jobs("deferred_jobs", payload)),
            ("ready_segments", segments(range)),
            ("job_unique_claims", CLAIMS.to_owned()),
            ("queue_lanes", "TABLE {s}.queue_lanes".to_owned()),
            ("queue_enqueue_heads", "TABLE {s}.queue_enqueue_heads".to_owned()),
            ("queue_claim_heads", "TABLE {s}.queue_claim_heads".to_owned()),
            ("sequences", SEQUENCES.to_owned()),
        ];
        let mut tables = Vec::new();
        for (name, query) in queries {
            let query = format!("(WITH places AS ({PLACES}) {query})").replace("{s}", schema).replace("{c}", claims);
            tables.push((name, rows(client, &query, &[]).await));
        }
        Self(tables)
    }

    /// Without the order of ids across lanes, in which awa's batches differ: they give them lane by lane.
    pub fn within_lanes(mut self) -> Self {
        for row in self.0.iter_mut().flat_map(|(_, rows)| rows).filter_map(Value::as_object_mut) {
            row.remove("place");
        }
        self
    }

    /// Fails with the rows that only one side has.
    #[track_caller]
    pub fn assert_same(&self, found: &Self, what: &str) {
        for ((name, expected), (_, found)) in self.0.iter().zip(&found.0) {
            assert_same_rows(&format!("{what}: {name}"), expected, found);
        }
    }

    /// How many jobs there are, ready and deferred.
    pub fn jobs(&self) -> usize {
        self.0.iter().filter(|(name, _)| ["ready_entries", "deferred_jobs"].contains(name)).map(|(_, rows)| rows.len()).sum()
    }
}

/// Fails if there is a job, a segment, a claim or a lane.
pub async fn assert_nothing_stored(client: &Client, storage: Storage, when: &str) {
    for table in ["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims", "queue_lanes"] {
        let left = rows(client, &storage.table(table), &[]).await;
        assert!(left.is_empty(), "{when}, {storage:?}: {table} has {} rows, such as {}", left.len(), left[0]);
    }
}

/// The kinds of all jobs in the order of their ids: what was enqueued, where a test tells jobs apart by their kinds.
pub async fn stored_kinds(client: &Client, storage: Storage) -> Vec<String> {
    let sql = format!(
        "SELECT kind FROM (SELECT job_id, kind FROM {} UNION ALL SELECT job_id, kind FROM {}) AS job ORDER BY job_id",
        storage.table("ready_entries"),
        storage.table("deferred_jobs")
    );
    client.query(&sql, &[]).await.expect(&sql).iter().map(|row| row.get(0)).collect()
}
