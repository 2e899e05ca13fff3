//! The same jobs by COPY in each format, by CSV, by INSERT, as a JSON batch and as arrays leave equal rows and have equal outcomes.

use awa_ingest_tests::copy::{self, Format, Row, copy_rows, last_ingest};
use awa_ingest_tests::jobs::{self, Enqueued, key_of_shard};
use awa_ingest_tests::{Storage, Stored, rows};
use awa_model::{InsertOpts, InsertParams, UniqueOpts};
use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use tokio_postgres::Client;

/// A way to enqueue the rows that a job's columns can express. `awa.enqueue_columns` knows no states and no `uniqueness`.
#[derive(Clone, Copy, Debug)]
enum Way {
    Batch,
    Copy(Format),
    Csv,
    CsvText,
    Insert,
}

const WAYS: [Way; 7] =
    [Way::Batch, Way::Copy(Format::Text), Way::Copy(Format::Csv), Way::Copy(Format::Binary), Way::Csv, Way::CsvText, Way::Insert];

impl Way {
    /// Enqueues `rows`; conflicts are skipped or not.
    async fn enqueue(self, client: &Client, rows: &[Row], skip: bool) -> Vec<Enqueued> {
        let (table, on_conflict) = if skip { ("awa.ingest_skip_conflicts", "skip") } else { ("awa.ingest", "error") };
        match self {
            Self::Batch => {
                let batch: Value = rows.iter().map(Row::object).collect();
                answer(client.query("SELECT * FROM awa.enqueue_batch($1::jsonb, $2)", &[&batch, &on_conflict]).await, self)
            }
            Self::Copy(format) => {
                let read = copy_rows(client, table, format, rows).await.unwrap_or_else(|error| panic!("{self:?}: {error:?}"));
                assert_eq!(read, rows.len() as u64);
                last_ingest(client).await
            }
            Self::Csv => {
                let call = "SELECT * FROM awa.enqueue_csv($1::bytea, $2)";
                answer(client.query(call, &[&copy::csv_with_header(rows), &on_conflict]).await, self)
            }
            Self::CsvText => {
                let csv = String::from_utf8(copy::csv_with_header(rows)).expect("UTF-8");
                answer(client.query("SELECT * FROM awa.enqueue_csv($1::text, $2)", &[&csv, &on_conflict]).await, self)
            }
            Self::Insert => {
                insert_select(client, table, rows).await;
                last_ingest(client).await
            }
        }
    }
}

fn answer(result: Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>, way: Way) -> Vec<Enqueued> {
    result.unwrap_or_else(|error| panic!("{way:?}: {error:?}")).into_iter().map(Enqueued::from).collect()
}

async fn insert_select(client: &Client, table: &str, rows: &[Row]) {
    client.batch_execute("CREATE TEMP TABLE source (LIKE awa.ingest, line bigserial)").await.expect("a table like it");
    copy_rows(client, "source", Format::Text, rows).await.expect("an ordinary table takes it");
    let columns = copy::COLUMNS.join(", ");
    let insert = format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM source ORDER BY line");
    assert_eq!(client.execute(&insert, &[]).await.expect(&insert), rows.len() as u64);
}

/// What a way leaves and says, with ids counted from the batch's first.
#[derive(Debug)]
struct Outcome {
    stored: Stored,
    answer: Vec<(i64, Option<i64>, Option<i64>)>,
}

impl Outcome {
    /// Enqueues by `enqueue` and takes everything back, so that the next way finds the storage as this one did.
    async fn of(client: &Client, storage: Storage, enqueue: impl AsyncFnOnce(&Client) -> Vec<Enqueued>) -> Self {
        client.batch_execute("BEGIN").await.unwrap();
        let answer = enqueue(client).await;
        let first = answer.iter().filter_map(|row| row.job_id).min().expect("something was enqueued");
        let from_first = |id: Option<i64>| id.map(|id| id - first);
        let answer = answer.iter().map(|row| (row.ord, from_first(row.job_id), from_first(row.conflicts_with))).collect();
        let stored = Stored::read(client, storage).await;
        client.batch_execute("ROLLBACK").await.unwrap();
        Self { stored, answer }
    }

    #[track_caller]
    fn assert_same(&self, other: &Self, what: &str) {
        self.stored.assert_same(&other.stored, what);
        assert_eq!(self.answer, other.answer, "{what}: the answer");
    }
}

/// All ways for `rows` must leave what the first does, which is returned.
async fn assert_ways_agree(client: &Client, storage: Storage, rows: &[Row], skip: bool, what: &str) -> Outcome {
    let mut first: Option<Outcome> = None;
    for way in WAYS {
        let outcome = Outcome::of(client, storage, async |client| way.enqueue(client, rows, skip).await).await;
        match &first {
            Some(first) => first.assert_same(&outcome, &format!("{what}, {way:?}, {storage:?}")),
            None => first = Some(outcome),
        }
    }
    first.expect("there are ways")
}

/// A database with a queue in several shards and a key that is taken.
async fn prepare(storage: Storage) -> Client {
    let client = storage.db().await.connect().await;
    storage.shard(&client, "sharded", 7).await;
    client
}

/// A time a few days from now, which an available job may have, too.
fn at(hours: i64) -> DateTime<Utc> {
    static BASE: LazyLock<DateTime<Utc>> = LazyLock::new(|| Utc::now().duration_trunc(TimeDelta::hours(1)).expect("an hour"));
    *BASE + TimeDelta::hours(48 + hours) + TimeDelta::microseconds(123_456)
}

/// Jobs that awa's own type expresses, of every sort. Keys repeat if `repeating`.
fn jobs_of_every_sort(repeating: bool) -> Vec<InsertParams> {
    (0..80)
        .map(|n: usize| {
            let unique = UniqueOpts {
                by_queue: n.is_multiple_of(2),
                by_period: n.is_multiple_of(5).then_some(n as i64 / 40),
                states: [0b0001_1111, 0b0000_0110, 0b1110_0001, 0][n / 4 % 4],
                ..Default::default()
            };
            let queue = ["default", "Ünïcode \"q\" 🚀", "sharded", "a,b\n\\", "with#hash"][n % 5];
            let opts = InsertOpts {
                queue: queue.to_owned(),
                priority: [3, 1, 4, 2][n % 4],
                max_attempts: [25, 1, 1000][n % 3],
                run_at: n.is_multiple_of(7).then(|| at(n as i64)),
                metadata: [json!({}), json!({"k": {"é": [1.5, null]}}), json!({"": "\\N"})][n % 3].clone(),
                tags: [vec![], vec![], vec!["a, \"b\"".into(), "\\".into(), "".into()], vec!["NULL".into()]][n % 4].clone(),
                unique: (n % 3 < 2).then_some(unique),
                ordering_key: (queue == "sharded" || n % 4 == 1).then(|| key_of_shard(n as i16 / 5 % 7, 7)),
                ..Default::default()
            };
            let n = if repeating { n % 30 } else { n };
            jobs::job_with(["kind", "другой"][n % 2], json!({"n": n, "s": "\u{1}\u{2028}é\"\t", "f": 1e-7}), opts)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn awas_jobs_are_the_same_by_every_way() {
    for storage in Storage::BOTH {
        let client = prepare(storage).await;
        for skip in [false, true] {
            let jobs = jobs_of_every_sort(skip);
            let prepared: Vec<Row> = jobs.iter().map(Row::prepared).collect();
            let described: Vec<Row> = jobs.iter().map(Row::described).collect();
            let by_key = assert_ways_agree(&client, storage, &prepared, skip, "unique keys").await;
            let by_options = assert_ways_agree(&client, storage, &described, skip, "uniqueness").await;
            by_key.assert_same(&by_options, "the server computes the keys that awa's client does");

            let policy = if skip { "skip" } else { "error" };
            let columns = async |client: &Client| jobs::try_enqueue_columns(client, &jobs, policy).await.expect("enqueue_columns");
            by_key.assert_same(&Outcome::of(&client, storage, columns).await, &format!("enqueue_columns, {storage:?}"));
            let skipped = by_key.answer.iter().filter(|(_, job_id, _)| job_id.is_none()).count();
            assert_eq!(skipped > 0, skip, "{skipped} of {} jobs were skipped", jobs.len());
        }
    }
}

/// States and times that awa's client does not send, and what is left to the defaults.
#[tokio::test(flavor = "multi_thread")]
async fn states_and_defaults_are_the_same_by_every_way() {
    let mut batch = Vec::new();
    for state in [None, Some("available"), Some("scheduled"), Some("retryable")] {
        for run_at in [None, Some(at(1)), Some(at(1)), Some(at(-400))] {
            for queue in [None, Some("q".to_owned()), Some(String::new())] {
                let uniqueness =
                    Some([json!(true), json!(false), json!({"by_args": true, "states": ["retryable"]})][batch.len() % 3].clone());
                let args = json!([batch.len(), state]);
                batch.push(Row { state: state.map(str::to_owned), run_at, queue, uniqueness, ..Row::new("k", args) });
            }
        }
    }
    // One value given at a time, and a JSON null, which is a value that args can have.
    batch.push(Row { args: None, ..Row::new("bare", json!({})) });
    batch.push(Row::new("null", json!(null)));
    batch.push(Row { priority: Some(4), ..Row::new("p", json!("")) });
    batch.push(Row { max_attempts: Some(1000), ..Row::new("m", json!([])) });
    batch.push(Row { metadata: Some(json!({"a": 1})), ..Row::new("d", json!({})) });
    batch.push(Row { tags: Some(vec!["a".into()]), ..Row::new("t", json!({})) });
    batch.push(Row { unique_key: Some(vec![0, 255]), unique_states: Some("11111111".into()), ..Row::new("u", json!({})) });
    batch.push(Row { unique_key: Some(vec![1]), ..Row::new("no states", json!({})) });
    for storage in Storage::BOTH {
        let client = prepare(storage).await;
        let outcome = assert_ways_agree(&client, storage, &batch, false, "states").await;
        assert_eq!(outcome.stored.jobs(), batch.len());
    }
}

const LETTERS: [&str; 24] = [
    "a",
    "B",
    "7",
    " ",
    "\t",
    "\n",
    "\r",
    ",",
    ";",
    "\"",
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "NULL",
    "\\N",
    "__AWA_NULL__",
    "\\.",
    "é",
    "🐘",
    "\u{2028}",
    "\u{1}",
];

fn text(rng: &mut StdRng, longest: usize) -> String {
    (0..rng.random_range(1..=longest)).map(|_| *LETTERS.choose(rng).expect("letters")).collect()
}

fn json_value(rng: &mut StdRng, depth: u32) -> Value {
    match rng.random_range(0..if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => json!(rng.random::<bool>()),
        2 => json!(rng.random::<i64>() >> rng.random_range(0..64)),
        3 => json!(rng.random_range(-1e6..1e6) * 10f64.powi(rng.random_range(-30..30))),
        4 => json!(text(rng, 8)),
        5 => json!(["", "{}", "null", "\\x00", "__AWA_NULL__"].choose(rng)),
        6 => (0..rng.random_range(0..5)).map(|_| json_value(rng, depth - 1)).collect(),
        _ => Value::Object(object(rng, depth - 1)),
    }
}

fn object(rng: &mut StdRng, depth: u32) -> Map<String, Value> {
    (0..rng.random_range(0..4)).map(|_| (text(rng, 3), json_value(rng, depth))).collect()
}

fn maybe<T>(rng: &mut StdRng, value: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    if rng.random() { Some(value(rng)) } else { None }
}

/// Any job that is valid on both storages.
fn random_row(rng: &mut StdRng) -> Row {
    let queue =
        maybe(rng, |rng| ["q", "r", "", "sharded", "sharded", "ö,\"\n"].choose(rng).map(|q| (*q).to_owned()).expect("queues"));
    let mut row = Row {
        kind: Some(text(rng, 10)),
        args: maybe(rng, |rng| json_value(rng, 4)),
        state: maybe(rng, |rng| ["available", "scheduled", "retryable"].choose(rng).map(|s| (*s).to_owned()).expect("states")),
        priority: maybe(rng, |rng| rng.random_range(1..=4)),
        max_attempts: maybe(rng, |rng| rng.random_range(1..=1000)),
        run_at: maybe(rng, |rng| {
            DateTime::from_timestamp_micros(rng.random_range(-2_000_000_000_000_000..9_000_000_000_000_000)).expect("a time")
        }),
        metadata: maybe(rng, |rng| Value::Object(object(rng, 3))),
        tags: maybe(rng, |rng| (0..rng.random_range(0..6)).map(|_| text(rng, 5)).collect()),
        ordering_key: (queue.as_deref() == Some("sharded") || rng.random_bool(0.2)).then(|| rng.random::<[u8; 3]>().to_vec()),
        queue,
        ..Row::default()
    };
    match rng.random_range(0..4) {
        0 => {
            row.unique_key = Some(vec![rng.random_range(0..60), 0xff]);
            row.unique_states = Some((0..8).map(|_| if rng.random_bool(0.7) { '1' } else { '0' }).collect());
        }
        1 => row.uniqueness = Some(random_uniqueness(rng, &mut row.args)),
        _ => {}
    }
    row
}

/// Options for uniqueness, with arguments that often come again.
fn random_uniqueness(rng: &mut StdRng, args: &mut Option<Value>) -> Value {
    *args = Some(json!({"n": rng.random_range(0..20)}));
    match rng.random_range(0..4) {
        0 => json!(true),
        1 => json!(false),
        _ => json!({"by_queue": rng.random::<bool>(), "by_args": rng.random::<bool>(), "by_period": rng.random_range(0..3),
                    "states": ["available", "scheduled", "failed"]}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_jobs_are_the_same_by_every_way() {
    for storage in Storage::BOTH {
        let client = prepare(storage).await;
        for seed in 1..=3 {
            let mut rng = StdRng::seed_from_u64(seed);
            let batch: Vec<Row> = (0..250).map(|_| random_row(&mut rng)).collect();
            let outcome = assert_ways_agree(&client, storage, &batch, true, &format!("seed {seed}")).await;
            let skipped = batch.len() - outcome.stored.jobs();
            assert!((5..150).contains(&skipped), "{skipped} jobs were skipped");
        }
        assert!(rows(&client, &storage.table("ready_entries"), &[]).await.is_empty(), "every way was taken back");
    }
}
