//! A job enqueued by awa's client and the same job enqueued in SQL collide, in both directions.

use awa_ingest_tests::{Db, Failure, Storage, Worker, failure, jobs, rows};
use awa_model::{AwaError, InsertOpts, InsertParams, QueueStorage, QueueStorageConfig, UniqueOpts};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_postgres::Client;

fn unique_job(args: Value, unique: UniqueOpts) -> InsertParams {
    jobs::job_with("invoice", args, InsertOpts { unique: Some(unique), ..Default::default() })
}

fn same_job() -> InsertParams {
    unique_job(json!({"order": 7, "total": 12.5, "note": "é\u{2028}"}), UniqueOpts::default())
}

fn store() -> QueueStorage {
    QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage")
}

async fn id_of_only_job(client: &Client) -> i64 {
    client.query_one("SELECT id FROM awa.jobs", &[]).await.expect("one job").get(0)
}

#[track_caller]
fn assert_conflict(refused: &Failure, ordinal: u64) {
    assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"), "{refused:?}");
    assert_eq!(refused.ordinal(), Some(ordinal), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_sees_the_claim_of_awas_client() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let batch = [jobs::job("other", json!({})), same_job()];
    store().enqueue_params_copy(&db.pool().await, &batch[1..]).await.unwrap();
    let holder = id_of_only_job(&client).await;

    let refused = failure(jobs::try_enqueue_batch(&client, &batch, "error").await);
    assert_conflict(&refused, 2);
    assert_conflict(&failure(jobs::try_enqueue_columns(&client, &batch, "error").await), 2);
    assert_eq!(failure(jobs::try_enqueue(&client, &batch[1]).await).constraint, "idx_awa_jobs_unique");
    assert_eq!(id_of_only_job(&client).await, holder);

    let enqueued = jobs::try_enqueue_batch(&client, &batch, "skip").await.unwrap();
    assert_eq!((enqueued[0].ord, enqueued[0].conflicts_with), (1, None));
    assert!(enqueued[0].job_id.is_some());
    assert_eq!((enqueued[1].ord, enqueued[1].job_id, enqueued[1].conflicts_with), (2, None, Some(holder)));
}

#[tokio::test(flavor = "multi_thread")]
async fn awas_client_sees_the_claim_of_sql() {
    let db = Db::awa().await;
    let (client, pool) = (db.connect().await, db.pool().await);
    let holder = jobs::enqueue_batch(&client, &[same_job()]).await[0].job_id.unwrap();

    for refused in every_rust_path(&pool, &same_job()).await {
        assert!(matches!(&refused, AwaError::UniqueConflict { constraint: Some(c) } if c == "idx_awa_jobs_unique"), "{refused:?}");
    }
    assert_eq!(id_of_only_job(&client).await, holder);
}

/// The errors of awa's own ways to enqueue `job`.
async fn every_rust_path(pool: &PgPool, job: &InsertParams) -> [AwaError; 3] {
    let jobs = std::slice::from_ref(job);
    [
        store().enqueue_params_copy(pool, jobs).await.expect_err("copy must conflict"),
        store().enqueue_params_batch(pool, jobs).await.expect_err("batch must conflict"),
        insert_raw(pool, job).await.expect_err("insert must conflict"),
    ]
}

/// awa's compatibility path, which its single inserts and other languages' adapters use.
async fn insert_raw(pool: &PgPool, job: &InsertParams) -> Result<(), AwaError> {
    let prepared = awa_model::prepare_raw_job_insert(job.kind.clone(), job.args.clone(), job.opts.clone())?;
    sqlx::query("SELECT awa.insert_job_compat($1, $2, $3, 'available', 2::smallint, 25::smallint, NULL, '{}', '{}', $4, $5::text::bit(8), NULL)")
        .bind(prepared.kind())
        .bind(prepared.queue())
        .bind(prepared.args())
        .bind(prepared.unique_key())
        .bind(prepared.unique_states_bit_string())
        .execute(pool)
        .await
        .map(drop)
        .map_err(awa_model::map_sqlx_error)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_bit_of_the_initial_state_claims() {
    const SCHEDULED: u8 = 1 << 0;
    const AVAILABLE: u8 = 1 << 1;
    const RETRYABLE: u8 = 1 << 4;
    let cases = [
        ("available", AVAILABLE, true),
        ("available", !AVAILABLE, false),
        ("scheduled", SCHEDULED, true),
        ("scheduled", !SCHEDULED, false),
        ("retryable", RETRYABLE, true),
        ("retryable", !RETRYABLE, false),
        ("available", 0, false),
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for (n, (state, states, claims)) in cases.into_iter().enumerate() {
            let mut object = jobs::object(&unique_job(json!(n), UniqueOpts { states, ..Default::default() }));
            object["state"] = json!(state);
            let id: i64 =
                client.query_one("SELECT job_id FROM awa.enqueue_batch($1::jsonb)", &[&json!([object])]).await.unwrap().get(0);
            let held = format!("(SELECT * FROM {} WHERE job_id = {id})", storage.table("job_unique_claims"));
            assert_eq!(rows(&client, &held, &[]).await.len(), usize::from(claims), "{state} {states:08b} {storage:?}");
        }
    }
}

/// awa's worker releases the claim when the job reaches a state outside its states, and keeps it otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn awas_worker_releases_what_sql_claimed() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let until_done = UniqueOpts { states: 0b0001_0111, ..Default::default() };
    let batch = [unique_job(json!("until done"), until_done), unique_job(json!("for good"), UniqueOpts::default())];
    jobs::enqueue_batch(&client, &batch).await;
    assert_conflict(&failure(jobs::try_enqueue_batch(&client, &batch, "error").await), 1);

    let worker = Worker::builder().queue("default").kind("invoice").start(&db).await;
    worker.wait_for(2).await;
    worker.stop().await;

    let again = jobs::try_enqueue_batch(&client, &batch, "skip").await.unwrap();
    assert!(again[0].job_id.is_some(), "the claim of a completed job is free: {again:?}");
    assert!(again[1].conflicts_with.is_some(), "completed is among its states: {again:?}");
}
