//! Unique keys are those of awa's clients, byte for byte, so that jobs of SQL, Rust and Python collide as they should.

use std::collections::BTreeMap;

use awa_ingest_tests::{Storage, jobs};
use awa_model::{InsertOpts, InsertParams, UniqueOpts, prepare_raw_job_insert};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_postgres::Client;

/// A line of `vectors/unique_keys.json`, which awa's Python client made (see `vectors/make.py`).
#[derive(Deserialize)]
struct Vector {
    name: String,
    kind: String,
    queue: String,
    args: Value,
    unique: Parts,
    key: String,
}

#[derive(Deserialize)]
struct Parts {
    by_queue: bool,
    by_args: bool,
    by_period: Option<i64>,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../vectors/unique_keys.json")).expect("the vectors file")
}

impl Vector {
    fn job(&self) -> InsertParams {
        let Parts { by_queue, by_args, by_period } = self.unique;
        let unique = UniqueOpts { by_queue, by_args, by_period, ..Default::default() };
        unique_job(&self.kind, &self.queue, self.args.clone(), unique)
    }
}

fn unique_job(kind: &str, queue: &str, args: Value, unique: UniqueOpts) -> InsertParams {
    let opts = InsertOpts { queue: queue.to_owned(), unique: Some(unique), ..Default::default() };
    jobs::job_with(kind, args, opts)
}

/// The key that awa's Rust client computes.
fn rust_key(job: &InsertParams) -> String {
    let prepared = prepare_raw_job_insert(job.kind.clone(), job.args.clone(), job.opts.clone()).expect("a valid job");
    hex::encode(prepared.unique_key().expect("a unique job"))
}

/// All claims, by the job that holds them.
async fn claims(client: &Client, storage: Storage) -> BTreeMap<i64, String> {
    let sql = format!("SELECT job_id, encode(unique_key, 'hex') FROM {}", storage.table("job_unique_claims"));
    client.query(&sql, &[]).await.expect(&sql).into_iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
fn the_rust_client_agrees_with_the_python_client() {
    for vector in vectors() {
        assert_eq!(rust_key(&vector.job()), vector.key, "{}", vector.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_computes_the_golden_keys() {
    let vectors = vectors();
    let batch: Vec<_> = vectors.iter().map(Vector::job).collect();
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let enqueued = jobs::enqueue_batch(&client, &batch).await;
        let claimed = claims(&client, storage).await;
        for (vector, job) in vectors.iter().zip(enqueued) {
            assert_eq!(claimed[&job.job_id.unwrap()], vector.key, "{}, {storage:?}", vector.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_ask_for_uniqueness_gives_the_same_key() {
    let vector = &vectors()[1];
    let (key, bits) = (&vector.key, "11111000");
    let args = &vector.args;
    let ways = [
        format!("SELECT awa.enqueue('uniq_job', '{args}', uniqueness => 'true')"),
        format!("SELECT awa.enqueue('uniq_job', '{args}', uniqueness => '{{}}')"),
        format!(r#"SELECT awa.enqueue('uniq_job', uniqueness => '{{"unique_key": "{key}", "unique_states": "{bits}"}}')"#),
        format!(r#"SELECT job_id FROM awa.enqueue_batch('[{{"kind": "uniq_job", "args": {args}, "unique": true}}]')"#),
        format!(
            r#"SELECT job_id FROM awa.enqueue_batch(
               '[{{"kind": "uniq_job", "unique_key": "{key}", "unique_states": "{bits}"}}]')"#
        ),
        format!(
            "SELECT job_id FROM awa.enqueue_columns(ARRAY['uniq_job'], unique_key => ARRAY['\\x{key}'::bytea],
             unique_states => ARRAY['{bits}'])"
        ),
    ];
    for way in ways {
        let storage = Storage::Attached;
        let client = storage.db().await.connect().await;
        let id: i64 = client.query_one(&way, &[]).await.expect(&way).get(0);
        assert_eq!(claims(&client, storage).await, BTreeMap::from([(id, key.clone())]), "{way}");
        let states: String = client.query_one("SELECT unique_states FROM awa.ready_entries", &[]).await.unwrap().get(0);
        assert_eq!(states, bits, "{way}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_computes_the_keys_of_random_arguments() {
    let mut rng = StdRng::seed_from_u64(0x6177_615f_696e_6765);
    let unique = UniqueOpts::default();
    let batch: Vec<_> = (0..2000).map(|n| unique_job(&format!("kind {n}"), "q", random(&mut rng, 4), unique.clone())).collect();
    let client = Storage::Embedded.db().await.connect().await;
    let enqueued = jobs::enqueue_batch(&client, &batch).await;
    let claimed = claims(&client, Storage::Embedded).await;
    for (job, enqueued) in batch.iter().zip(enqueued) {
        assert_eq!(claimed[&enqueued.job_id.unwrap()], rust_key(job), "{}", job.args);
    }
}

/// What jsonb cannot carry: the key follows the value that is stored.
#[tokio::test(flavor = "multi_thread")]
async fn keys_follow_the_stored_value() {
    let sent_and_stored = [
        (r#"{"a": -0.0}"#, json!({"a": 0.0})),
        (r#"{"a": 1e16}"#, json!({"a": 10_000_000_000_000_000_u64})),
        (r#"{"a": 1E2}"#, json!({"a": 100})),
        (r#"{"a": 1.50}"#, json!({"a": 1.5})),
        (r#"{"a": 2.00}"#, json!({"a": 2.0})),
        (r#"{"a": 18446744073709551615}"#, json!({"a": u64::MAX})),
        (r#"{"a": 1, "b": 2, "a": 3}"#, json!({"a": 3, "b": 2})),
        (r#"{"b": "\u00e9\u2028\ud83d\ude00\/"}"#, json!({"b": "é\u{2028}😀/"})),
    ];
    let client = Storage::Embedded.db().await.connect().await;
    for (sent, stored) in sent_and_stored {
        let sql = format!("SELECT awa.enqueue('uniq_job', '{sent}'::jsonb, uniqueness => 'true')");
        let id: i64 = client.query_one(&sql, &[]).await.expect(&sql).get(0);
        let expected = rust_key(&unique_job("uniq_job", "default", stored, UniqueOpts::default()));
        assert_eq!(claims(&client, Storage::Embedded).await[&id], expected, "{sent}");
    }
}

/// A JSON value of any shape. Left out are numbers that jsonb does not hand back as sent, see the test above.
fn random(rng: &mut StdRng, depth: u32) -> Value {
    match rng.random_range(0..if depth == 0 { 6 } else { 9 }) {
        0 => Value::Null,
        1 => json!(rng.random::<bool>()),
        2 => json!(rng.random::<i64>() >> rng.random_range(0..64)),
        3 => json!(random_float(rng)),
        4 | 5 => json!(random_text(rng)),
        6 | 7 => {
            let members = (0..rng.random_range(0..6)).map(|_| (random_text(rng), random(rng, depth - 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        _ => (0..rng.random_range(0..6)).map(|_| random(rng, depth - 1)).collect(),
    }
}

fn random_float(rng: &mut StdRng) -> f64 {
    loop {
        let float = match rng.random_range(0..3) {
            0 => f64::from_bits(rng.random()),
            1 => rng.random_range(-1e6..1e6),
            _ => f64::from(rng.random::<f32>()) * 10f64.powi(rng.random_range(-30..30)),
        };
        let carried = float.is_finite() && float != 0.0 && !(1e16..2e19).contains(&float.abs());
        if carried {
            return float;
        }
    }
}

fn random_text(rng: &mut StdRng) -> String {
    let character = |rng: &mut StdRng| match rng.random_range(0..4) {
        0 => rng.random_range('\u{1}'..'\u{20}'),
        1 => rng.random_range(' '..'\u{80}'),
        2 => rng.random_range('\u{80}'..'\u{2100}'),
        _ => rng.random::<char>(),
    };
    let length = rng.random_range(0..12);
    (0..length).map(|_| character(rng)).filter(|c| *c != '\0').collect()
}
