//! The bytes that awa 0.6.9's `insert_many_copy` sends are taken unchanged, and give the rows that awa's own path gives.

use std::collections::BTreeSet;

use awa_ingest_tests::copy::copy_in;
use awa_ingest_tests::{CopyTap, Db, Notifications, Storage, Stored, assert_nothing_stored, failure, jobs, rows};
use awa_model::{InsertOpts, InsertParams, QueueStorage, QueueStorageConfig, UniqueOpts, insert_many_copy_from_pool};
use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use serde_json::json;
use sqlx::PgPool;
use tokio_postgres::Client;

/// The statement of awa's client, with the foreign table in place of its staging table.
fn statement(table: &str) -> String {
    format!(
        "COPY {table} (kind, queue, args, state, priority, max_attempts, run_at, metadata, tags, unique_key, unique_states, \
         ordering_key) FROM STDIN WITH (FORMAT csv, NULL '__AWA_NULL__')"
    )
}

/// Two databases that began equal: awa's client writes one, and what it sent is copied into the other.
struct Pair {
    awa: Db,
    copied: Db,
    tap: CopyTap,
    pool: PgPool,
}

impl Pair {
    async fn new() -> Self {
        let (awa, copied) = (Db::awa().await, Db::awa().await);
        for db in [&awa, &copied] {
            Storage::Attached.shard(&db.connect().await, "sharded", 5).await;
        }
        let tap = CopyTap::start(&awa).await;
        let pool = PgPool::connect(tap.url()).await.expect("awa's connection through the tap");
        Self { awa, copied, tap, pool }
    }

    /// Sends `batch` both ways; both storages must hold the same rows. Returns the bytes.
    async fn assert_equal(&self, batch: &[InsertParams], what: &str) -> Vec<u8> {
        let mut awas_wakeups = listen(&self.awa, batch).await;
        let mut wakeups = listen(&self.copied, batch).await;
        insert_many_copy_from_pool(&self.pool, batch).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let bytes = self.tap.take();
        assert!(!bytes.is_empty(), "{what}: awa's client copies");

        let client = self.copied.connect().await;
        // awa's client leaves out jobs whose key is taken.
        let read = copy_in(&client, &statement("awa.ingest_skip_conflicts"), bytes.clone()).await;
        assert_eq!(read.unwrap_or_else(|error| panic!("{what}: {error:?}")), batch.len() as u64);
        let expected = Stored::read_by_job(&self.awa.connect().await, Storage::Attached).await;
        expected.assert_same(&Stored::read_by_job(&client, Storage::Attached).await, what);
        assert_eq!(channels(&mut awas_wakeups).await, channels(&mut wakeups).await, "{what}: wake-ups");
        bytes
    }
}

/// A connection that listens for every queue of `batch`.
async fn listen(db: &Db, batch: &[InsertParams]) -> (Client, Notifications) {
    let (client, notifications) = db.listen("awa:default").await;
    for job in batch {
        client.batch_execute(&format!("LISTEN \"awa:{}\"", job.opts.queue.replace('"', "\"\""))).await.expect("LISTEN");
    }
    (client, notifications)
}

async fn channels((client, notifications): &mut (Client, Notifications)) -> BTreeSet<(String, String)> {
    client.batch_execute("SELECT 1").await.expect("a round trip");
    notifications.arrived().iter().map(|n| (n.channel().to_owned(), n.payload().to_owned())).collect()
}

/// Text that is special to CSV, COPY, arrays, JSON or to awa's null string.
const SPECIAL: [&str; 34] = [
    "plain",
    "__AWA_NULL__",
    " __AWA_NULL__ ",
    "__awa_null__",
    "NULL",
    "null",
    "Null",
    "\\N",
    "\\.",
    "\\",
    "\\\\x00",
    "a\\",
    "\"",
    "\"\"",
    "say \"hi\"",
    "'",
    ",",
    "a,b",
    ";",
    "{",
    "}",
    "{}",
    "{a,b}",
    "[1]",
    "line\nfeed",
    "carriage\r\nreturn",
    "carriage\rreturn",
    "tab\tstop",
    " leading and trailing ",
    "two  spaces",
    "Ünïcödé ﷽ \u{301}",
    "🐘👩‍👩‍👧",
    "\u{1}\u{7f}\u{2028}\u{feff}",
    "--; DROP TABLE x",
];

fn at(seconds: i64) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2041, 5, 6, 7, 8, 9).unwrap() + TimeDelta::seconds(seconds) + TimeDelta::microseconds(123_456)
}

/// Each special text in each column that can hold it, and all of them as tags.
fn special_jobs() -> Vec<InsertParams> {
    let mut batch: Vec<InsertParams> = SPECIAL
        .iter()
        .map(|text| {
            let opts = InsertOpts {
                queue: (*text).to_owned(),
                metadata: json!({*text: {"text": text, "list": [text, null, 1.5e-7]}}),
                tags: vec![(*text).to_owned(), String::new(), "b".to_owned()],
                ..Default::default()
            };
            jobs::job_with(text, json!({"text": text, *text: [text, {"deep": {"er": [[text]]}}]}), opts)
        })
        .collect();
    for tags in SPECIAL.chunks(17) {
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        batch.push(jobs::job_with("tags", json!({}), InsertOpts { tags, ..Default::default() }));
    }
    // An empty queue, an empty tag alone, and arguments that are no object.
    batch.push(jobs::job_with(
        "empty",
        json!(""),
        InsertOpts { queue: String::new(), tags: vec![String::new()], ..Default::default() },
    ));
    for args in [json!(null), json!("__AWA_NULL__"), json!([]), json!(-0.5), json!(u64::MAX), json!("")] {
        batch.push(jobs::job("args", args));
    }
    batch
}

/// Jobs with every option, in several lanes, some for later.
fn jobs_of_every_sort(n: usize) -> Vec<InsertParams> {
    (n..n + 60)
        .map(|n| {
            let opts = InsertOpts {
                queue: ["beta", "alpha", "default", "alpha", "with#hash"][n % 5].to_owned(),
                priority: [3, 1, 4, 2][n % 4],
                max_attempts: [25, 1, 1000][n % 3],
                run_at: (n % 7 == 0).then(|| at(n as i64)),
                metadata: [json!({}), json!({"k": {"é": [1.5, null]}})][n % 2].clone(),
                tags: [vec![], vec!["a".into(), "b c".into()]][n / 2 % 2].clone(),
                ..Default::default()
            };
            jobs::job_with(["kind", "другой"][n % 2], json!({"n": n}), opts)
        })
        .collect()
}

fn jobs_with_ordering_keys() -> Vec<InsertParams> {
    (0..60)
        .map(|n: usize| {
            let ordering_key = Some([b'k', (n % 13) as u8, 0, 0xff, b'"', b','].repeat(n % 3));
            let opts = InsertOpts { ordering_key, queue: ["sharded", "alpha"][n % 2].to_owned(), ..Default::default() };
            jobs::job_with("ordered", json!({"n": n}), opts)
        })
        .collect()
}

/// Keys that repeat within a batch and between batches, and keys that claim nothing in the job's state.
fn unique_jobs(n: usize) -> Vec<InsertParams> {
    (n..n + 60)
        .map(|n| {
            let unique = UniqueOpts {
                by_queue: n % 2 == 0,
                by_period: (n % 5 == 0).then_some((n / 20) as i64),
                states: [0b0001_1111, 0b0000_0010, 0b0000_0001, 0][n / 30 % 4],
                ..Default::default()
            };
            let run_at = (n % 4 == 0).then(|| at((n % 20) as i64));
            let opts = InsertOpts { unique: (n % 3 < 2).then_some(unique), run_at, ..Default::default() };
            jobs::job_with("once", json!({"order": n % 40, "text": "\"é\",\n"}), opts)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn special_values_arrive_as_awa_stores_them() {
    let pair = Pair::new().await;
    let bytes = pair.assert_equal(&special_jobs(), "special values").await;
    let text = String::from_utf8(bytes).expect("UTF-8");
    for piece in [
        "\"__AWA_NULL__\",\"__AWA_NULL__\",",
        "\"carriage\r\nreturn\"",
        "\"{__AWA_NULL__,\"\"\"\",b}\"",
        "\"\\.\"",
        "🐘",
        ",__AWA_NULL__\n",
    ] {
        assert!(text.contains(piece), "awa's client sends {piece:?}");
    }
    let client = pair.copied.connect().await;
    let stored = "SELECT count(*) FROM awa.ready_entries WHERE kind = $1 AND queue = $1 AND args->>'text' = $1";
    for text in SPECIAL {
        assert_eq!(client.query_one(stored, &[&text]).await.unwrap().get::<_, i64>(0), 1, "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_every_sort_give_awas_rows() {
    let pair = Pair::new().await;
    pair.assert_equal(&jobs_of_every_sort(0), "new lanes").await;
    pair.assert_equal(&jobs_of_every_sort(60), "known lanes").await;
    let config = QueueStorageConfig::default();
    for db in [&pair.awa, &pair.copied] {
        let store = QueueStorage::new(config.clone()).expect("awa's default storage");
        store.rotate(&db.pool().await).await.expect("the next slot");
    }
    pair.assert_equal(&jobs_of_every_sort(120), "next slot").await;
    pair.assert_equal(&jobs_with_ordering_keys(), "ordering keys").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_jobs_give_awas_rows_and_claims() {
    let pair = Pair::new().await;
    for n in [0, 60, 120] {
        pair.assert_equal(&unique_jobs(n), &format!("unique jobs from {n}")).await;
    }
    let client = pair.copied.connect().await;
    let claims = rows(&client, "awa.job_unique_claims", &[]).await.len();
    let skipped = 180 - Stored::read(&client, Storage::Attached).await.jobs();
    assert!(claims > 40 && skipped > 20, "keys were taken and met again: {claims}, {skipped}");
}

/// The same against awa's fastest path, with nothing made comparable first: payloads and segments are those of a batch.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_are_those_of_awas_own_batches() {
    let pair = Pair::new().await;
    let batches = Db::awa().await;
    Storage::Attached.shard(&batches.connect().await, "sharded", 5).await;
    let (pool, store) = (batches.pool().await, QueueStorage::new(QueueStorageConfig::default()).expect("awa's storage"));
    for batch in [special_jobs(), jobs_of_every_sort(0), jobs_with_ordering_keys()] {
        pair.assert_equal(&batch, "by job").await;
        store.enqueue_params_copy(&pool, &batch).await.expect("enqueue_params_copy");
        let expected = Stored::read(&batches.connect().await, Storage::Attached).await.within_lanes();
        expected.assert_same(&Stored::read(&pair.copied.connect().await, Storage::Attached).await.within_lanes(), "by batch");
    }
}

/// Without jobs that conflict both foreign tables do the same, and so do both storages, as far as they have the same tables.
#[tokio::test(flavor = "multi_thread")]
async fn both_tables_and_both_storages_take_the_bytes() {
    let pair = Pair::new().await;
    let mut batch = special_jobs();
    batch.extend(jobs_of_every_sort(0));
    let bytes = pair.assert_equal(&batch, "the tap").await;
    let mut embedded = Vec::new();
    for storage in Storage::BOTH {
        for table in ["awa.ingest", "awa.ingest_skip_conflicts"] {
            let client = storage.db().await.connect().await;
            assert_eq!(copy_in(&client, &statement(table), bytes.clone()).await.expect(table), batch.len() as u64);
            let stored = Stored::read(&client, storage).await;
            assert_eq!(stored.jobs(), batch.len());
            match storage {
                Storage::Embedded => embedded.push(stored),
                Storage::Attached => {
                    Stored::read(&pair.copied.connect().await, storage).await.assert_same(&stored, table);
                }
            }
        }
    }
    embedded[0].assert_same(&embedded[1], "the embedded storage");
}

/// Lines by hand, for what awa's client cannot be made to send. The order of awa's columns, all but run_at as awa's defaults.
fn line(kind: &str, state: &str, run_at: &str) -> String {
    format!("{kind},default,{{}},{state},2,25,\"{run_at}\",{{}},{{}},__AWA_NULL__,__AWA_NULL__,__AWA_NULL__\n")
}

/// awa's way for bytes that its client would have sent: a staging table, and its function for each row.
async fn stage_as_awa_does(client: &Client, bytes: &str) {
    let staging = "CREATE TEMP TABLE staging (kind text, queue text, args jsonb, state awa.job_state, priority smallint,
        max_attempts smallint, run_at timestamptz, metadata jsonb, tags text[], unique_key bytea, unique_states bit(8),
        ordering_key bytea, line bigserial)";
    client.batch_execute(staging).await.expect(staging);
    copy_in(client, &statement("staging"), bytes.to_owned()).await.expect("awa's staging table takes it");
    let insert = "SELECT count(awa.insert_job_compat(kind, queue, args, state, priority, max_attempts, run_at, metadata, tags,
        unique_key, unique_states, ordering_key)) FROM (SELECT * FROM staging ORDER BY line) AS staged";
    client.execute(insert, &[]).await.expect(insert);
    client.batch_execute("DROP TABLE staging").await.expect("DROP TABLE");
}

const TIMES: [&str; 19] = [
    "2041-01-02T03:04:05.123456+00:00",
    "2041-01-02T03:04:05Z",
    "2041-01-02 03:04:05.5+05:30",
    "2041-01-02 03:04:05-11",
    "2041-01-02 03:04 Europe/Berlin",
    "2041-07-02 03:04 Europe/Berlin",
    "2041-01-02 03:04 PST",
    "2041-01-02",
    "20410102T030405",
    "01/02/2041 03:04",
    "January 8, 2041 04:05 pm",
    "2041.002",
    "J2466524",
    "epoch",
    "0044-03-15 12:00:00+00 BC",
    "4714-11-24 00:00:00+00 BC",
    "262142-12-31 23:59:59.999999+00",
    "2041-12-31 23:59:60",
    " 2041-01-02 24:00:00 ",
];

#[tokio::test(flavor = "multi_thread")]
async fn times_in_every_notation_are_awas() {
    let sessions =
        ["SET timezone = 'UTC'", "SET timezone = 'America/St_Johns'", "SET timezone = '+14'; SET datestyle = 'SQL, DMY'"];
    let csv: String = ["scheduled", "retryable"]
        .iter()
        .flat_map(|state| TIMES.iter().enumerate().map(move |(n, time)| line(&format!("time {n}"), state, time)))
        .collect();
    for session in sessions {
        let (awa, copied) = (Db::awa().await.connect().await, Db::awa().await.connect().await);
        for client in [&awa, &copied] {
            client.batch_execute(session).await.unwrap();
        }
        stage_as_awa_does(&awa, &csv).await;
        let read = copy_in(&copied, &statement("awa.ingest"), csv.clone()).await;
        assert_eq!(read.unwrap_or_else(|error| panic!("{session}: {error:?}")), 2 * TIMES.len() as u64);
        let expected = Stored::read_by_job(&awa, Storage::Attached).await;
        expected.assert_same(&Stored::read_by_job(&copied, Storage::Attached).await, session);
        let distinct = "(SELECT DISTINCT run_at FROM awa.deferred_jobs)";
        assert!(rows(&copied, distinct, &[]).await.len() >= 15, "the times differ");
    }
}

/// Times that stop awa's workers are refused on its storage, and only there.
#[tokio::test(flavor = "multi_thread")]
async fn times_that_stop_awas_workers() {
    let times = ["-infinity", "infinity", "262143-01-01 00:00:00+00"];
    let times = times.into_iter().flat_map(|time| ["scheduled", "retryable", "available"].map(|state| (state, time)));
    for (state, time) in times.chain([("available", "1970-01-01 00:00:00+00"), ("available", "2099-01-01 00:00:00+00")]) {
        let csv = line("good", "available", "yesterday") + &line("bad", state, time);
        let (attached, embedded) = (Db::awa().await.connect().await, Db::embedded().await.connect().await);
        let refused = failure(copy_in(&attached, &statement("awa.ingest"), csv.clone()).await);
        assert_eq!((refused.sqlstate.as_str(), refused.ordinal()), ("22008", Some(2)), "{state} {time}: {refused:?}");
        assert_nothing_stored(&attached, Storage::Attached, time).await;

        embedded.batch_execute("SET timezone = 'UTC'").await.expect("SET");
        assert_eq!(copy_in(&embedded, &statement("awa.ingest"), csv).await.expect(time), 2);
        let stored =
            "(SELECT run_at::text FROM awa_ingest.ready_entries UNION ALL SELECT run_at::text FROM awa_ingest.deferred_jobs)";
        assert!(rows(&embedded, stored, &[]).await.contains(&json!({"run_at": time})), "{state} {time}");
    }
}

/// Unquoted, awa's null string is NULL: a default, but for the kind.
#[tokio::test(flavor = "multi_thread")]
async fn the_unquoted_sentinel_is_null() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let nulls = ",__AWA_NULL__".repeat(11) + "\n";
        let defaults = format!("\"__AWA_NULL__\"{nulls}k{nulls}");
        assert_eq!(copy_in(&client, &statement("awa.ingest"), defaults.clone()).await.unwrap(), 2);
        let stored = format!(
            "(SELECT kind, queue, args, priority, max_attempts, payload, unique_key FROM {})",
            storage.table("ready_entries")
        );
        let job = |kind| json!({"kind": kind, "queue": "default", "args": {}, "priority": 2, "max_attempts": 25, "payload": null, "unique_key": null});
        assert_eq!(rows(&client, &stored, &[]).await, [job("__AWA_NULL__"), job("k")], "{storage:?}");

        let refused = failure(copy_in(&client, &statement("awa.ingest"), format!("{defaults}__AWA_NULL__{nulls}")).await);
        let found = (refused.sqlstate.as_str(), refused.column.as_str(), refused.ordinal());
        assert_eq!(found, ("23502", "kind", Some(3)), "{refused:?}");
        assert_eq!(rows(&client, &stored, &[]).await.len(), 2);
    }
}
