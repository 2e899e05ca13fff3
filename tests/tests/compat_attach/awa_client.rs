//! awa's own clients, unchanged, over the replacement: the same rows come back, and the same are stored.

use awa_ingest_tests::{Db, Storage, Stored, Worker, jobs};
use awa_model::{InsertOpts, InsertParams, JobRow, UniqueOpts};
use chrono::{TimeZone, Utc};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::setup::{assert_lanes_are_whole, attached, engine, run};

/// Jobs of every sort. `n` keeps those of several calls apart.
fn some_jobs(n: usize) -> Vec<InsertParams> {
    (n..n + 150)
        .map(|n| {
            let opts = InsertOpts {
                queue: ["alpha", "beta", "Ünïcode \"q\""][n % 3].into(),
                priority: 1 + (n % 4) as i16,
                max_attempts: [25, 1, 1000][n % 3],
                run_at: (n % 7 == 0).then(|| Utc.with_ymd_and_hms(2041, 5, 6, 7, 8, 9).unwrap()),
                metadata: [json!({}), json!({"n": n})][n % 2].clone(),
                tags: [vec![], vec!["a, \"b\"".into(), "".into()]][n % 2].clone(),
                unique: (n % 5 == 0).then(UniqueOpts::default),
                ordering_key: (n % 3 == 1).then(|| vec![n as u8]),
                ..Default::default()
            };
            jobs::job_with("step", json!({"n": n}), opts)
        })
        .collect()
}

/// What of a returned row is not the moment's.
fn told(rows: &[JobRow]) -> Vec<Value> {
    let one = |row: &JobRow| {
        json!({"id": row.id, "kind": row.kind, "queue": row.queue, "args": row.args, "state": row.state.to_string(), "priority": row.priority,
            "attempt": row.attempt, "max_attempts": row.max_attempts, "metadata": row.metadata, "tags": row.tags, "unique_key": row.unique_key,
            "run_at": (row.run_at > Utc::now()).then_some(row.run_at)})
    };
    rows.iter().map(one).collect()
}

async fn insert_each_way(pool: &PgPool) -> Vec<Vec<Value>> {
    let mut answers = vec![told(&awa_model::insert_many(pool, &some_jobs(0)).await.expect("insert_many"))];
    answers.push(told(&awa_model::insert_many_copy_from_pool(pool, &some_jobs(150)).await.expect("insert_many_copy")));
    // Keys that are taken are skipped by COPY, and refused otherwise.
    answers.push(told(&awa_model::insert_many_copy_from_pool(pool, &some_jobs(140)).await.expect("insert_many_copy, taken keys")));
    let refused = awa_model::insert_many(pool, &some_jobs(0)).await.expect_err("taken keys");
    answers.push(vec![json!(refused.to_string().contains("unique") || refused.to_string().contains("duplicate"))]);
    let mut transaction = pool.begin().await.unwrap();
    for batch in [300, 450] {
        answers.push(told(&awa_model::insert_many_copy(&mut transaction, &some_jobs(batch)).await.expect("one transaction")));
    }
    transaction.commit().await.unwrap();
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_get_and_leave_the_same() {
    for state in ["active", "canonical"] {
        let databases = [Db::awa().await, attached().await];
        let mut answers = Vec::new();
        for db in &databases {
            let client = db.connect().await;
            run(&client, &engine(state)).await;
            Storage::Attached.shard(&client, "beta", 3).await;
            answers.push(insert_each_way(&db.pool().await).await);
        }
        assert_eq!(answers[1], answers[0], "{state}");
        assert!(answers[0][2].len() > 100 && answers[0][2].len() < 150, "some were taken: {}", answers[0][2].len());
        let clients = [databases[0].connect().await, databases[1].connect().await];
        if state == "active" {
            let [expected, found] = [
                Stored::read_by_job(&clients[0], Storage::Attached).await,
                Stored::read_by_job(&clients[1], Storage::Attached).await,
            ];
            expected.assert_same(&found, state);
            assert_lanes_are_whole(&clients[1], "awa", state).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_what_clients_insert() {
    let db = attached().await;
    let pool = db.pool().await;
    let now = |n: usize| some_jobs(n).into_iter().filter(|job| job.opts.run_at.is_none()).collect::<Vec<_>>();
    let mut ids: Vec<i64> = awa_model::insert_many(&pool, &now(0)).await.unwrap().iter().map(|row| row.id).collect();
    ids.extend(awa_model::insert_many_copy_from_pool(&pool, &now(150)).await.unwrap().iter().map(|row| row.id));
    let worker =
        Worker::builder().queue("alpha").queue("beta").queue("Ünïcode \"q\"").kind("step").max_workers(20).start(&db).await;
    worker.wait_for(ids.len()).await;
    let mut worked = worker.stop().await;
    worked.sort_by_key(|job| job.id);
    ids.sort_unstable();
    assert_eq!(worked.iter().map(|job| job.id).collect::<Vec<_>>(), ids);
    let odd =
        worked.iter().find(|job| (job.args["n"].as_i64().unwrap() % 2 == 1) != (job.tags.len() == 2 && job.metadata != json!({})));
    assert!(odd.is_none(), "tags and metadata arrive: {odd:?}");
}
