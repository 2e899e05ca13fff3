//! The replacement beside the original, in two databases that began equal: equal result rows, and equal rows in every table.

use awa_ingest_tests::{Db, Storage, Stored, Template, assert_same_rows, failure, rows};
use awa_model::{QueueStorage, QueueStorageConfig};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::cases::{ODD, SHARDED, STOPPING_AWA, TAKEN, UNUSUAL_KEYS};
use crate::setup::{assert_lanes_are_whole, engine, run, try_insert};

/// Everything of a returned row: times only where they were given, and the id counted from the first one.
const RESULT: &str = "to_jsonb(job) || jsonb_build_object(
    'run_at', CASE WHEN run_at NOT BETWEEN clock_timestamp() - interval '5 min' AND clock_timestamp() THEN run_at END,
    'created_at', created_at NOT BETWEEN clock_timestamp() - interval '5 min' AND clock_timestamp(),
    'types', jsonb_build_array(pg_typeof(job), pg_typeof(unique_states), array_ndims(errors), array_length(errors, 1)))";

/// The number of rows in every table, so that one that nobody thought of cannot differ unseen.
const ROWS_PER_TABLE: &str = "(SELECT relname, (xpath('/row/n/text()',
        query_to_xml(format('SELECT count(*) AS n FROM %s', oid::regclass), true, true, '')))[1]::text AS n
    FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition)";

/// Two databases: awa's function works on one, the extension's on the other.
struct Pair {
    original: Client,
    replaced: Client,
    databases: [Db; 2],
}

impl Pair {
    async fn of(template: Template) -> Self {
        let databases = [Db::of(template).await, Db::of(template).await];
        let [original, replaced] = [databases[0].connect().await, databases[1].connect().await];
        if template != Template::Awa {
            run(&replaced, "CREATE EXTENSION awa_ingest").await;
        }
        run(&replaced, "SELECT awa_ingest.attach()").await;
        let pair = Self { original, replaced, databases };
        for (queue, shards) in SHARDED {
            pair.run_on_both(&format!("INSERT INTO awa.queue_meta (queue, enqueue_shards) VALUES ('{queue}', {shards})")).await;
        }
        pair
    }

    fn both(&self) -> [&Client; 2] {
        [&self.original, &self.replaced]
    }

    async fn run_on_both(&self, statements: &str) {
        for client in self.both() {
            run(client, statements).await;
        }
    }

    /// One call on both, which must give the same row.
    async fn call(&self, arguments: &str) {
        let [expected, found] = self.answers(arguments).await;
        assert!(expected.is_ok(), "awa refuses {arguments}: {expected:?}");
        assert_eq!(found, expected, "{arguments}");
    }

    /// The rows that a call gives on both, or the SQLSTATEs of their refusals.
    async fn answers(&self, arguments: &str) -> [Result<String, String>; 2] {
        let call = format!("SELECT ({RESULT})::text FROM awa.insert_job_compat({arguments}) AS job");
        let mut answers = [const { Ok(String::new()) }; 2];
        for (client, answer) in self.both().into_iter().zip(&mut answers) {
            *answer = match client.query_one(&call, &[]).await {
                Ok(row) => Ok(row.get(0)),
                refused => Err(failure(refused).sqlstate),
            };
        }
        answers
    }

    /// What both have in the tables of queue storage, and in `awa.jobs`.
    async fn assert_same_in(&self, schema: &str, what: &str) {
        let [expected, found] =
            [Stored::read_schema_by_job(&self.original, schema).await, Stored::read_schema_by_job(&self.replaced, schema).await];
        expected.assert_same(&found, what);
        self.assert_same_jobs(what).await;
        assert_lanes_are_whole(&self.replaced, schema, what).await;
    }

    /// What both have in the canonical tables, with what their triggers keep.
    async fn assert_same_canonical(&self, what: &str) {
        let stored = |table| format!("(SELECT {RESULT} AS job FROM awa.{table} AS job)");
        let tables = [
            &stored("jobs_hot"),
            &stored("scheduled_jobs"),
            "(SELECT encode(unique_key, 'hex') AS key, job_id FROM awa.job_unique_claims)",
            "(SELECT queue FROM awa.admin_dirty_queue_marks)",
            "(SELECT kind FROM awa.admin_dirty_kind_marks)",
            ROWS_PER_TABLE,
        ];
        for table in tables {
            let [expected, found] = [rows(&self.original, table, &[]).await, rows(&self.replaced, table, &[]).await];
            assert!(!expected.is_empty(), "{what}: {table}");
            assert_same_rows(&format!("{what}: {table}"), &expected, &found);
        }
        self.assert_same_jobs(what).await;
    }

    async fn assert_same_jobs(&self, what: &str) {
        let jobs = format!("(SELECT {RESULT} AS job FROM awa.jobs AS job)");
        let [expected, found] = [rows(&self.original, &jobs, &[]).await, rows(&self.replaced, &jobs, &[]).await];
        assert!(!expected.is_empty(), "{what}: awa.jobs shows what there is");
        assert_same_rows(&format!("{what}: awa.jobs"), &expected, &found);
    }
}

/// Fails if a payload is not what awa's batches write.
async fn assert_payloads_are_compact(client: &Client, schema: &str) {
    let odd = format!(
        "(SELECT payload FROM (SELECT payload FROM {schema}.ready_entries UNION ALL SELECT payload FROM {schema}.deferred_jobs) AS job
           WHERE payload = '{{}}' OR payload - 'metadata' - 'tags' <> '{{}}' OR payload->'metadata' = '{{}}' OR payload->'tags' = '[]')"
    );
    assert_eq!(rows(client, &odd, &[]).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_storage() {
    let pair = Pair::of(Template::Awa).await;
    for arguments in TAKEN {
        pair.call(arguments).await;
    }
    pair.assert_same_in("awa", "queue storage").await;
    assert_payloads_are_compact(&pair.replaced, "awa").await;
    assert_eq!(Stored::read(&pair.replaced, Storage::Attached).await.jobs(), TAKEN.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_in_one_transaction_and_on_known_lanes() {
    let pair = Pair::of(Template::Awa).await;
    for end in ["ROLLBACK", "COMMIT", "COMMIT"] {
        pair.run_on_both("TRUNCATE awa.job_unique_claims; BEGIN").await;
        for arguments in TAKEN {
            pair.call(arguments).await;
        }
        pair.run_on_both(end).await;
    }
    pair.assert_same_in("awa", "one transaction").await;
}

/// Calls that nobody should make are no place to differ either.
#[tokio::test(flavor = "multi_thread")]
async fn odd_calls() {
    let pair = Pair::of(Template::Awa).await;
    for arguments in ODD {
        pair.call(arguments).await;
    }
    pair.assert_same_in("awa", "odd calls").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_unique_keys() {
    let pair = Pair::of(Template::Awa).await;
    for arguments in UNUSUAL_KEYS {
        pair.call(arguments).await;
    }
    pair.assert_same_in("awa", "unusual keys").await;
}

/// The one thing that the replacement refuses and the original takes.
#[tokio::test(flavor = "multi_thread")]
async fn what_stops_awas_workers_is_refused() {
    let pair = Pair::of(Template::Awa).await;
    for (sqlstate, arguments) in STOPPING_AWA {
        let [original, replaced] = pair.answers(arguments).await;
        assert!(original.is_ok(), "{arguments}");
        assert_eq!(replaced, Err((*sqlstate).to_owned()), "{arguments}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_canonical_engine() {
    for state in ["canonical", "prepared"] {
        let pair = Pair::of(Template::AwaCanonical).await;
        pair.run_on_both(&engine(state)).await;
        for arguments in TAKEN.iter().chain(["'k', p_state => 'running'", "'k', p_state => 'completed'"].iter()) {
            pair.call(arguments).await;
        }
        pair.assert_same_canonical(state).await;
        let there = rows(&pair.replaced, "awa.ready_entries", &[]).await;
        assert!(there.is_empty(), "{state}");
    }
}

/// The names for which no channel is wide enough.
#[tokio::test(flavor = "multi_thread")]
async fn long_queue_names_on_the_canonical_engine() {
    let pair = Pair::of(Template::AwaCanonical).await;
    for arguments in ["'k', repeat('q', 59)", "'k', repeat('q', 60)", "'k', repeat('é', 30)", "'k', repeat('q', 200)"] {
        pair.call(arguments).await;
    }
    pair.assert_same_jobs("long names").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_transition() {
    let pair = Pair::of(Template::AwaCanonical).await;
    pair.run_on_both(&engine("mixed_transition")).await;
    for arguments in TAKEN {
        pair.call(arguments).await;
    }
    pair.assert_same_in("awa", "mixed_transition").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_schema() {
    let pair = Pair::of(Template::Awa).await;
    for schema in ["jobs_one", "Jobs Two"] {
        let config = QueueStorageConfig { schema: schema.into(), queue_slot_count: 5, ..Default::default() };
        let Ok(store) = QueueStorage::new(config) else { continue };
        for db in &pair.databases {
            store.install(&db.pool().await).await.expect(schema);
        }
        pair.run_on_both("TRUNCATE awa.job_unique_claims").await;
        for arguments in TAKEN {
            pair.call(arguments).await;
        }
        pair.assert_same_in(schema, schema).await;
        assert_payloads_are_compact(&pair.replaced, schema).await;
    }
}

/// Slots of a ring that has turned.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_rotation() {
    let pair = Pair::of(Template::Awa).await;
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
    for round in 0..3 {
        for number in 0..4 {
            pair.call(&format!("'k', 'q', to_jsonb({number}), p_priority => {}::smallint", 1 + number % 2)).await;
        }
        for db in &pair.databases {
            store.rotate(&db.pool().await).await.expect("rotate");
        }
        pair.assert_same_in("awa", &format!("round {round}")).await;
    }
}

/// Jobs without an ordering key go to any shard, but to a lane that is whole, and no shard is left out for good.
#[tokio::test(flavor = "multi_thread")]
async fn shards_without_an_ordering_key() {
    let pair = Pair::of(Template::Awa).await;
    for _ in 0..8 {
        pair.call("'k', 'sharded'").await;
    }
    let client = &pair.replaced;
    for _ in 0..8 {
        let rows =
            client.query("SELECT id FROM generate_series(1, 5), LATERAL awa.insert_job_compat('k', 'sharded')", &[]).await.unwrap();
        assert_eq!(rows.len(), 5);
    }
    assert_lanes_are_whole(client, "awa", "shards").await;
    let shards: Value =
        rows(client, "(SELECT jsonb_agg(DISTINCT enqueue_shard) AS shards FROM awa.ready_entries WHERE queue = 'sharded')", &[])
            .await[0]["shards"]
            .clone();
    assert!(shards.as_array().expect("shards").iter().all(|shard| (0..4).contains(&shard.as_i64().expect("a number"))), "{shards}");
}

/// The view's trigger is a caller like any other, with arguments of its own making.
#[tokio::test(flavor = "multi_thread")]
async fn inserts_into_the_view() {
    let pair = Pair::of(Template::Awa).await;
    let inserts = [
        "INSERT INTO awa.jobs (kind) VALUES ('k')",
        "INSERT INTO awa.jobs (kind, queue, args, priority, tags, metadata) VALUES ('a', 'q', '1', 1, '{t}', '{\"m\": 1}'), ('b', 'q', '2', 1, NULL, NULL)",
        "INSERT INTO awa.jobs (kind, state, run_at) SELECT 'later', 'scheduled', '2041-01-01'::timestamptz + n * interval '1 day' FROM generate_series(1, 5) AS n",
        "INSERT INTO awa.jobs (kind, unique_key, unique_states) VALUES ('once', 'key', B'11111111')",
    ];
    for insert in inserts {
        for state in ["active", "canonical"] {
            if state == "canonical" && insert.contains("unique_key") {
                continue;
            }
            pair.run_on_both(&engine(state)).await;
            let [mut expected, mut found] = [Vec::new(), Vec::new()];
            for (client, rows) in pair.both().into_iter().zip([&mut expected, &mut found]) {
                let returning = format!("WITH job AS ({insert} RETURNING *) SELECT {RESULT} FROM job");
                *rows =
                    client.query(&returning, &[]).await.expect(insert).iter().map(|row| row.get::<_, Value>(0)).collect::<Vec<_>>();
            }
            assert_eq!(found, expected, "{state}: {insert}");
        }
    }
    pair.run_on_both(&engine("active")).await;
    pair.assert_same_in("awa", "inserts into the view").await;
}

/// The id is the one of the stored row, and `awa.jobs` shows the job as it was returned.
#[tokio::test(flavor = "multi_thread")]
async fn the_returned_row_is_the_jobs() {
    for state in ["active", "canonical"] {
        let client = crate::setup::attached().await.connect().await;
        run(&client, &engine(state)).await;
        for arguments in TAKEN {
            let mut returned = try_insert(&client, arguments).await.expect(arguments);
            let mut shown = rows(&client, &format!("(SELECT * FROM awa.jobs WHERE id = {})", returned["id"]), &[]).await;
            // The view has no list of errors where there are none.
            assert_eq!(returned["errors"].take(), json!([]));
            shown[0]["errors"].take();
            assert_eq!(shown, [returned], "{state}: {arguments}");
        }
        assert_eq!(rows(&client, "awa.jobs", &[]).await.len(), TAKEN.len());
    }
}
