//! Random bytes and mutated job objects: whatever comes, the server stands, an accepted job is stored, and a refused one gets an
//! SQLSTATE that says what was wrong.

use std::collections::BTreeMap;

use awa_ingest_tests::{Cluster, Db, backend_pid, rows};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio_postgres::Client;

const CASES: usize = 100_000;
/// Cases of a transaction; each has a subtransaction of its own.
const PIECE: usize = 500;
/// Sessions that share the cases, each in a database of its own: transactions of many calls would deadlock on lanes.
const SESSIONS: u64 = 2;

/// What the specification allows for a bad request: bad JSON, `\u0000`, no UTF-8; limits, missing kind, unknown or odd values,
/// times, and numbers that have no key or no `numeric`.
const ALLOWED: [&str; 8] = ["22P02", "22P05", "22021", "23514", "23502", "22023", "22007", "22003"];

/// Tries each case in a subtransaction and returns its SQLSTATE and message, `00000` for those that were accepted. The ids of
/// accepted jobs go into a table.
const HARNESS: &str = "CREATE TABLE accepted (job_id bigint);
    CREATE FUNCTION try_all(cases bytea[]) RETURNS text[] LANGUAGE plpgsql AS $$ DECLARE
        one bytea; outcomes text[] := '{}';
    BEGIN
        FOREACH one IN ARRAY cases LOOP
            BEGIN
                INSERT INTO accepted SELECT job_id FROM awa.enqueue_batch(convert_from(one, 'UTF8')::jsonb, 'skip') WHERE job_id IS NOT NULL;
                outcomes := outcomes || '00000'::text;
            EXCEPTION WHEN OTHERS THEN
                outcomes := outcomes || format('%s %s', SQLSTATE, SQLERRM);
            END;
        END LOOP;
        RETURN outcomes;
    END $$";

fn case(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..10) {
        0 => bytes(rng),
        1 => tokens(rng).into_bytes(),
        2..=4 => flipped(request(rng).to_string().into_bytes(), rng),
        _ => request(rng).to_string().into_bytes(),
    }
}

fn bytes(rng: &mut StdRng) -> Vec<u8> {
    (0..rng.random_range(0..64)).map(|_| rng.random()).collect()
}

/// Pieces of JSON in any order.
fn tokens(rng: &mut StdRng) -> String {
    const TOKENS: [&str; 20] = [
        "[",
        "]",
        "{",
        "}",
        ":",
        ",",
        "\"kind\"",
        "\"k\"",
        "\"args\"",
        "null",
        "true",
        "1",
        "-0",
        "1e400",
        "1e-400",
        "\"\\u0000\"",
        "\"\\ud800\"",
        " ",
        "\"unique\"",
        "\"run_at\"",
    ];
    (0..rng.random_range(1..30)).map(|_| *TOKENS.choose(rng).expect("tokens")).collect()
}

/// A few bytes changed, inserted, removed, or moved.
fn flipped(mut text: Vec<u8>, rng: &mut StdRng) -> Vec<u8> {
    const LIKELY: &[u8] = b"[]{}:,\"\\0123456789.eE+- ntfu\x00\x7f\xc3\xff";
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..text.len());
        let byte = if rng.random() { *LIKELY.choose(rng).expect("bytes") } else { rng.random() };
        match rng.random_range(0..4) {
            0 => text[at] = byte,
            1 => text.insert(at, byte),
            2 if text.len() > 1 => drop(text.remove(at)),
            _ => text.rotate_left(at),
        }
    }
    text
}

/// Jobs of which some are wrong.
fn request(rng: &mut StdRng) -> Value {
    if rng.random_bool(0.02) {
        return any_json(rng, 3);
    }
    (0..rng.random_range(0..4)).map(|_| if rng.random_bool(0.02) { any_json(rng, 2) } else { mutated_job(rng) }).collect()
}

fn mutated_job(rng: &mut StdRng) -> Value {
    const KEYS: [&str; 15] = [
        "kind",
        "queue",
        "args",
        "state",
        "priority",
        "max_attempts",
        "run_at",
        "metadata",
        "tags",
        "unique",
        "unique_key",
        "unique_states",
        "ordering_key",
        "job_id",
        "",
    ];
    let mut job = good_job(rng);
    for _ in 0..rng.random_range(0..3) {
        let key = *KEYS.choose(rng).expect("keys");
        match rng.random_range(0..4) {
            0 => drop(job.remove(key)),
            1 => drop(job.insert(key.into(), any_json(rng, 3))),
            _ => drop(job.insert(key.into(), likely(key, rng))),
        }
    }
    Value::Object(job)
}

fn good_job(rng: &mut StdRng) -> Map<String, Value> {
    let mut job = Map::new();
    job.insert("kind".into(), json!("k"));
    for key in ["queue", "args", "priority", "metadata", "tags", "unique"] {
        if rng.random_bool(0.3) {
            job.insert(key.into(), good(key, rng));
        }
    }
    job
}

fn good(key: &str, rng: &mut StdRng) -> Value {
    match key {
        "queue" => json!(["q", "r", "s"].choose(rng)),
        "priority" => json!(rng.random_range(1..=4)),
        "metadata" => json!({"m": any_json(rng, 2)}),
        "tags" => (0..rng.random_range(0..=20)).map(|n| json!(format!("t{n}"))).collect(),
        "unique" => json!({"by_queue": rng.random::<bool>(), "by_args": rng.random::<bool>()}),
        _ => any_json(rng, 4),
    }
}

/// A value for a key that is nearly right, or right.
fn likely(key: &str, rng: &mut StdRng) -> Value {
    let text = |choices: &[&str], rng: &mut StdRng| json!(choices.choose(rng));
    match key {
        "kind" => json!("k".repeat(rng.random_range(0..=201))),
        "queue" => text(&["q", "r", "q#0", "q#1", "#", "q#", " "], rng),
        "state" => text(&["available", "scheduled", "retryable", "running", "Available"], rng),
        "priority" | "max_attempts" => json!(*[-1, 0, 1, 4, 5, 1000, 1001, i64::MAX, i64::MIN].choose(rng).expect("numbers")),
        "run_at" => text(
            &["now", "2030-01-01", "infinity", "-infinity", "epoch", "0001-01-01 BC", "2030-02-30", "25:00", "nonsense", "+1"],
            rng,
        ),
        "tags" => Value::Array(vec![any_json(rng, 1); rng.random_range(0..=22)]),
        "unique" => {
            let option =
                *["by_queue", "by_args", "by_period", "states", "unique_key", "unique_states", "by"].choose(rng).expect("options");
            let values = [
                json!(true),
                json!(7),
                json!(1.5),
                json!("00ff"),
                json!("01000000"),
                json!(["available"]),
                json!(["done"]),
                json!(null),
            ];
            json!({option: values.choose(rng)})
        }
        "unique_key" => text(&["00", "\\x0f", "0", "xyz", ""], rng),
        "unique_states" => text(&["00000000", "11111111", "0100000", "010000000", "abcdefgh"], rng),
        "ordering_key" => text(&["text", "\\x", "\\x00ff", "\\x0", "\\xzz", "\\", ""], rng),
        _ => any_json(rng, 2),
    }
}

fn any_json(rng: &mut StdRng, depth: u32) -> Value {
    let scalars = 6;
    match rng.random_range(0..if depth == 0 { scalars } else { scalars + 2 }) {
        0 => Value::Null,
        1 => json!(rng.random::<bool>()),
        2 => json!(rng.random::<i64>() >> rng.random_range(0..64)),
        3 => json!(f64::from_bits(rng.random())),
        4 => json!((0..rng.random_range(0..12)).map(|_| rng.random::<char>()).filter(|c| *c != '\0').collect::<String>()),
        5 => json!(["", "k", "available", "{}", "null", "\\x00"].choose(rng)),
        6 => (0..rng.random_range(0..40)).map(|_| any_json(rng, depth - 1)).collect(),
        _ => Value::Object((0..rng.random_range(0..6)).map(|n| (format!("{:1$}", n, n * n), any_json(rng, depth - 1))).collect()),
    }
}

/// How often each SQLSTATE came. Fails on one that the specification does not know.
async fn try_cases(client: Client, seed: u64) -> BTreeMap<String, usize> {
    client.batch_execute(HARNESS).await.unwrap();
    let pid = backend_pid(&client).await;
    let try_all = client.prepare("SELECT try_all($1)").await.unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for piece in 0..CASES / SESSIONS as usize / PIECE {
        let cases: Vec<Vec<u8>> = (0..PIECE).map(|_| case(&mut rng)).collect();
        let answer = client
            .query_one(&try_all, &[&cases])
            .await
            .unwrap_or_else(|e| panic!("the server broke at seed {seed}, piece {piece}: {e:?}"));
        for (outcome, case) in answer.get::<_, Vec<String>>(0).into_iter().zip(&cases) {
            let sqlstate = outcome.get(..5).expect("an SQLSTATE");
            let allowed = sqlstate == "00000" || ALLOWED.contains(&sqlstate);
            assert!(allowed, "{outcome} for {} (seed {seed}, piece {piece})", String::from_utf8_lossy(case));
            *outcomes.entry(sqlstate.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(backend_pid(&client).await, pid, "the same backend from first to last");
    assert_accepted_are_stored(&client).await;
    outcomes
}

async fn assert_accepted_are_stored(client: &Client) {
    let stored = "SELECT job_id FROM awa_ingest.ready_entries UNION ALL SELECT job_id FROM awa_ingest.deferred_jobs";
    for (some, others) in [("TABLE accepted", stored), (stored, "TABLE accepted")] {
        let odd = format!("(({some}) EXCEPT ALL ({others}))");
        assert_eq!(rows(client, &odd, &[]).await, Vec::<Value>::new(), "accepted jobs are stored, and only those");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_cases() {
    let mut sessions = JoinSet::new();
    for seed in 1..=SESSIONS {
        sessions.spawn(try_cases(Db::embedded().await.connect().await, seed));
    }
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    while let Some(session) = sessions.join_next().await {
        for (sqlstate, count) in session.expect("a session's cases") {
            *outcomes.entry(sqlstate).or_default() += count;
        }
    }

    assert_eq!(outcomes.values().sum::<usize>(), CASES);
    // Cases that all fail for one reason would test nothing.
    for sqlstate in ALLOWED.into_iter().chain(["00000"]) {
        assert!(outcomes.get(sqlstate).is_some_and(|count| *count > 10), "{sqlstate} hardly came: {outcomes:?}");
    }
    let log = Cluster::shared().log();
    for sign in ["PANIC", "TRAP", "panicked", "was terminated by signal", "corrupt"] {
        assert!(!log.contains(sign), "the server's log has {sign}");
    }
}
