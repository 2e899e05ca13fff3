//! The same jobs through awa's client and through SQL leave equal rows in every table, ids and times aside.

use awa_ingest_tests::{Db, Storage, assert_same_rows, jobs, rows};
use awa_model::{InsertOpts, InsertParams, QueueStorage, QueueStorageConfig, UniqueOpts};
use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// What ids and times are in each table that an enqueue writes. Scheduled jobs keep the time they were given.
const TABLES: &[(&str, &[&str])] = &[
    ("ready_entries", &["job_id", "run_at", "created_at"]),
    ("ready_segments", &["first_run_at", "created_at"]),
    ("deferred_jobs", &["job_id", "created_at"]),
    ("queue_lanes", &[]),
    ("queue_enqueue_heads", &[]),
    ("queue_claim_heads", &[]),
    ("queue_ring_state", &["terminal_counter_trusted_at"]),
    ("queue_ring_slots", &[]),
];

/// Claims by the job that holds them rather than by its id.
const CLAIMS: &str = "(SELECT encode(c.unique_key, 'hex') AS key, j.kind, j.args, j.state
                       FROM awa.job_unique_claims AS c LEFT JOIN awa.jobs AS j ON j.id = c.job_id)";

/// Lane sequences are named after their lane, so names and positions both count. `seqrelid` would be an id.
const SEQUENCES: &str = "(SELECT sequencename, last_value, start_value, increment_by, cycle, cache_size, sequenceowner
                          FROM pg_sequences WHERE schemaname = 'awa')";

/// Two databases that began equal: awa's client writes one, SQL the other.
struct Pair {
    awa: Db,
    sql: Db,
    client: Client,
    store: QueueStorage,
}

impl Pair {
    async fn new(stripes: usize) -> Self {
        let (awa, sql) = (Db::awa().await, Db::awa().await);
        let client = sql.connect().await;
        client.batch_execute(&format!("SET awa_ingest.queue_stripe_count = '{stripes}'")).await.unwrap();
        for client in [&client, &awa.connect().await] {
            Storage::Attached.shard(client, "sharded", 4).await;
            Storage::Attached.shard(client, "sharded#1", 4).await;
        }
        let config = QueueStorageConfig { queue_stripe_count: stripes, ..Default::default() };
        Self { awa, sql, client, store: QueueStorage::new(config).expect("awa's default storage") }
    }

    async fn assert_equal(&self, what: &str) {
        let awa = self.awa.connect().await;
        for (table, but) in TABLES {
            let table = format!("awa.{table}");
            assert_same_rows(&format!("{what}: {table}"), &rows(&awa, &table, but).await, &rows(&self.client, &table, but).await);
        }
        for query in [CLAIMS, SEQUENCES] {
            assert_same_rows(what, &rows(&awa, query, &[]).await, &rows(&self.client, query, &[]).await);
        }
        let sizes = format!("{what}: rows per table");
        assert_same_rows(&sizes, &table_sizes(&awa).await, &table_sizes(&self.client).await);
    }
}

/// The number of rows in every table of the schema, so that a table nobody thought of cannot differ unseen.
async fn table_sizes(client: &Client) -> Vec<Value> {
    let count = "query_to_xml(format('SELECT count(*) AS n FROM %s', oid::regclass), true, true, '')";
    let tables = format!(
        "(SELECT relname, (xpath('/row/n/text()', {count}))[1]::text AS n FROM pg_class
          WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'p'))"
    );
    rows(client, &tables, &[]).await
}

fn opts(queue: &str) -> InsertOpts {
    InsertOpts { queue: queue.to_owned(), ..Default::default() }
}

fn at(hour: u32) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2041, 5, 6, hour, 7, 8).unwrap() + chrono::TimeDelta::microseconds(9)
}

/// Jobs of every sort, lanes in no order. `n` keeps the jobs of several calls apart.
fn jobs_of_every_sort(n: usize) -> Vec<InsertParams> {
    (n..n + 60)
        .map(|n| {
            let mut opts = opts(["beta", "alpha", "Ünïcode \"q\" 🚀", "default", "with#hash", "alpha"][n % 6]);
            opts.priority = [3, 1, 4, 2][n % 4];
            opts.max_attempts = [25, 1, 1000][n % 3];
            opts.run_at = (n % 7 == 0).then(|| at((n % 24) as u32));
            opts.metadata = [json!({}), json!({"k": {"é": [1.5, null]}}), json!({})][n % 3].clone();
            opts.tags = [vec![], vec![], vec!["a, \"b\"".into(), "\\".into(), "".into()], vec!["NULL".into()]][n % 4].clone();
            opts.unique = (n % 4 == 1).then(|| UniqueOpts {
                by_queue: n % 8 == 1,
                by_period: (n % 3 == 0).then_some(n as i64),
                states: [0b0001_1111, 0b0000_0110, 0b1110_0000][n % 3],
                ..Default::default()
            });
            jobs::job_with(["kind", "другой"][n % 2], json!({"n": n, "s": "\u{1}\u{2028}é", "f": 1e-7}), opts)
        })
        .collect()
}

/// Jobs with ordering keys: which shard they go to is the key's doing, not the client's.
fn jobs_with_ordering_keys(n: usize) -> Vec<InsertParams> {
    (n..n + 60)
        .map(|n| {
            let ordering_key = Some([b'k', (n % 13) as u8, 0, 0xff].repeat(n % 3));
            let opts = InsertOpts { priority: 1 + (n % 2) as i16, ordering_key, ..opts(["sharded", "alpha"][n / 2 % 2]) };
            jobs::job_with("kind", json!({"n": n}), opts)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_equal_awas_copy_and_batch() {
    let pair = Pair::new(1).await;
    let pool = pair.awa.pool().await;

    pair.store.enqueue_params_copy(&pool, &jobs_of_every_sort(0)).await.unwrap();
    jobs::enqueue_batch(&pair.client, &jobs_of_every_sort(0)).await;
    pair.assert_equal("enqueue_params_copy and enqueue_batch, new lanes").await;

    pair.store.enqueue_params_batch(&pool, &jobs_of_every_sort(60)).await.unwrap();
    jobs::enqueue_batch(&pair.client, &jobs_of_every_sort(60)).await;
    pair.assert_equal("enqueue_params_batch and enqueue_batch, known lanes").await;

    pair.store.rotate(&pool).await.unwrap();
    pair.store.rotate(&pair.sql.pool().await).await.unwrap();
    pair.store.enqueue_params_copy(&pool, &jobs_of_every_sort(120)).await.unwrap();
    jobs::enqueue_columns(&pair.client, &jobs_of_every_sort(120)).await;
    pair.assert_equal("enqueue_params_copy and enqueue_columns, next slot").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_jobs_equal_awas() {
    let pair = Pair::new(1).await;
    let pool = pair.awa.pool().await;
    for job in jobs_of_every_sort(0).into_iter().chain(jobs_with_ordering_keys(100)) {
        pair.store.enqueue_params_batch(&pool, std::slice::from_ref(&job)).await.unwrap();
        jobs::enqueue(&pair.client, &job).await;
    }
    pair.assert_equal("enqueue_params_batch and enqueue").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_equal_awas() {
    let pair = Pair::new(1).await;
    let pool = pair.awa.pool().await;
    for n in [0, 60] {
        pair.store.enqueue_params_copy(&pool, &jobs_with_ordering_keys(n)).await.unwrap();
    }
    jobs::enqueue_batch(&pair.client, &jobs_with_ordering_keys(0)).await;
    jobs::enqueue_columns(&pair.client, &jobs_with_ordering_keys(60)).await;
    pair.assert_equal("ordering keys").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_equal_awas() {
    let pair = Pair::new(4).await;
    let pool = pair.awa.pool().await;
    // awa puts a call's jobs with ordering keys before its others in the same lane, SQL keeps their order: no call mixes them.
    let mut plain = jobs_of_every_sort(0);
    // Names that are a stripe already, and names that only look like one.
    plain.extend(["alpha#2", "alpha#17", "alpha#", "alpha#x", "a#1#2", "#3", "alpha#+1", "alpha#01"].map(|queue| {
        let unique = Some(UniqueOpts { by_queue: true, ..Default::default() });
        jobs::job_with("kind", json!({"queue": queue}), InsertOpts { unique, ..opts(queue) })
    }));
    for batch in [plain, jobs_with_ordering_keys(100)] {
        pair.store.enqueue_params_copy(&pool, &batch).await.unwrap();
        jobs::enqueue_batch(&pair.client, &batch).await;
        pair.assert_equal("stripes, enqueue_batch").await;
    }
    for batch in [jobs_of_every_sort(200), jobs_with_ordering_keys(300)] {
        pair.store.enqueue_params_batch(&pool, &batch).await.unwrap();
        jobs::enqueue_columns(&pair.client, &batch).await;
        pair.assert_equal("stripes, enqueue_columns").await;
    }
}

/// One segment for each run of equal run_at, as awa makes them when it moves jobs with times of their own.
#[tokio::test(flavor = "multi_thread")]
async fn segments_break_where_run_at_changes() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let [first, second] = [2, 3].map(|days| (Utc::now() + TimeDelta::days(days)).date_naive().to_string());
    let times = [&first, &first, &second, &first, &first];
    let batch: Value =
        times.iter().map(|day| json!({"kind": "k", "state": "available", "run_at": format!("{day}T00:00:00Z")})).collect();
    client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&batch]).await.unwrap();
    let segments = "(SELECT first_lane_seq AS first, next_lane_seq AS next, first_run_at::date AS day FROM awa.ready_segments)";
    let expected = [
        json!({"day": first, "first": 1, "next": 3}),
        json!({"day": first, "first": 4, "next": 6}),
        json!({"day": second, "first": 3, "next": 4}),
    ];
    assert_same_rows("segments", &expected, &rows(&client, segments, &[]).await);
}
