//! Calls between savepoints, some rolled back: what is left is what plain inserts would have left, and a worker drains it.

use std::collections::BTreeMap;

use awa_ingest_tests::{Worker, backend_pid, failure, rows, wait_until_blocked, within};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio_postgres::Client;

use crate::setup::{assert_lanes_are_whole, attached, engine, ready_args, run, try_insert};

const KEYS: i32 = 30;

/// What the transaction should leave: ids of jobs, and of those that hold a key, by the key.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    jobs: Vec<i64>,
    holders: BTreeMap<i32, i64>,
}

impl Model {
    /// One call, of which a taken key is refused and costs nothing but its savepoint.
    async fn call(&mut self, client: &Client, rng: &mut StdRng) {
        let key = rng.random_bool(0.4).then(|| rng.random_range(0..KEYS));
        let state = ["available", "available", "scheduled", "retryable"][rng.random_range(0..4)];
        let unique = key.map(|key| format!(", p_unique_key => int4send({key}), p_unique_states => '11111111'")).unwrap_or_default();
        let arguments = format!(
            "'k', 'q{}', p_priority => {}::smallint, p_state => '{state}'{unique}",
            rng.random_range(0..3),
            rng.random_range(1..=2)
        );
        if key.is_some_and(|key| self.holders.contains_key(&key)) {
            run(client, "SAVEPOINT taken").await;
            assert_eq!(failure(try_insert(client, &arguments).await).sqlstate, "23505");
            run(client, "ROLLBACK TO taken; RELEASE taken").await;
            return;
        }
        let id = try_insert(client, &arguments).await.expect("a free key")["id"].as_i64().expect("an id");
        self.jobs.push(id);
        key.map(|key| self.holders.insert(key, id));
    }
}

/// A transaction of random calls, with savepoints opened, released and rolled back to. Returns what it left.
async fn transaction(client: &Client, before: &Model, rng: &mut StdRng) -> Model {
    run(client, "BEGIN").await;
    let mut current = before.clone();
    let mut savepoints: Vec<Model> = Vec::new();
    for _ in 0..40 {
        let depth = savepoints.len();
        match rng.random_range(0..10) {
            0..=4 => current.call(client, rng).await,
            5..=6 => {
                run(client, &format!("SAVEPOINT s{depth}")).await;
                savepoints.push(current.clone());
            }
            7 if depth > 0 => {
                run(client, &format!("RELEASE s{}", depth - 1)).await;
                savepoints.pop();
            }
            8.. if depth > 0 => {
                let to = rng.random_range(0..depth);
                run(client, &format!("ROLLBACK TO s{to}")).await;
                savepoints.truncate(to + 1);
                current = savepoints[to].clone();
            }
            _ => {}
        }
    }
    if rng.random_bool(0.3) {
        run(client, "ROLLBACK").await;
        return before.clone();
    }
    run(client, "COMMIT").await;
    current
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_rollbacks_leave_what_inserts_would() {
    for state in ["active", "canonical"] {
        let db = attached().await;
        let client = db.connect().await;
        run(&client, &engine(state)).await;
        let (mut model, mut rng) = (Model::default(), StdRng::seed_from_u64(4));
        for _ in 0..25 {
            model = transaction(&client, &model, &mut rng).await;
            assert_stored(&client, &model, state).await;
        }
        assert!(model.jobs.len() > 100 && model.holders.len() > 20, "the transactions did something");
        if state == "active" {
            run(&client, "UPDATE awa.deferred_jobs SET run_at = now(), state = 'scheduled'").await;
            let worker = Worker::builder().queue("q0").queue("q1").queue("q2").kind("k").max_workers(20).start(&db).await;
            worker.wait_for(model.jobs.len()).await;
            let mut worked: Vec<i64> = worker.stop().await.iter().map(|job| job.id).collect();
            worked.sort_unstable();
            assert_eq!(worked, model.jobs, "each once");
        }
    }
}

async fn assert_stored(client: &Client, model: &Model, state: &str) {
    let stored: Vec<i64> = client.query_one("SELECT array(SELECT id FROM awa.jobs ORDER BY 1)", &[]).await.unwrap().get(0);
    assert_eq!(stored, model.jobs, "{state}");
    let holders = rows(client, "(SELECT job_id FROM awa.job_unique_claims ORDER BY 1)", &[]).await;
    let mut holders: Vec<i64> = holders.iter().map(|row| row["job_id"].as_i64().expect("an id")).collect();
    holders.sort_unstable();
    let mut expected: Vec<i64> = model.holders.values().copied().collect();
    expected.sort_unstable();
    assert_eq!(holders, expected, "{state}");
    assert_lanes_are_whole(client, "awa", state).await;
}

/// The lane is locked to the end of the transaction also where the first call on it was rolled back and later ones were not.
#[tokio::test(flavor = "multi_thread")]
async fn positions_become_visible_in_their_order() {
    let db = attached().await;
    let (a, b) = (db.connect().await, db.connect().await);
    let pid = backend_pid(&b).await;
    try_insert(&a, "'k', 'q', '0'").await.unwrap();
    run(&a, "BEGIN; SAVEPOINT s; SELECT awa.insert_job_compat('k', 'q', '1'); ROLLBACK TO s").await;
    try_insert(&a, "'k', 'q', '2'").await.unwrap();
    let waiting = tokio::spawn(async move { try_insert(&b, "'k', 'q', '3'").await });
    wait_until_blocked(&a, pid).await;
    try_insert(&a, "'k', 'q', '4'").await.unwrap();
    run(&a, "COMMIT").await;
    within("the other session", waiting).await.unwrap().unwrap();
    assert_eq!(ready_args(&a).await, json!([0, 2, 4, 3]));
    assert_lanes_are_whole(&a, "awa", "two sessions").await;
}

/// And it is free when everything on it was rolled back, as the lock itself was.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_savepoint_gives_the_lane_back() {
    let db = attached().await;
    let (a, b) = (db.connect().await, db.connect().await);
    run(&a, "BEGIN; SAVEPOINT s; SELECT awa.insert_job_compat('k', 'q', '1'); ROLLBACK TO s").await;
    within("a free lane", try_insert(&b, "'k', 'q', '2'")).await.unwrap();
    try_insert(&a, "'k', 'q', '3'").await.unwrap();
    run(&a, "COMMIT").await;
    assert_eq!(ready_args(&a).await, json!([2, 3]));
    assert_lanes_are_whole(&a, "awa", "after a rollback").await;
}
