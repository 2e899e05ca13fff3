//! `awa_ingest.adopt()` moves what waits in the embedded storage into awa's, as if awa had been there first.

use std::collections::BTreeMap;

use awa_ingest_tests::{Db, Storage, Worker, failure, rows};
use awa_model::{QueueStorage, QueueStorageConfig};
use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::setup::{assert_lanes_are_whole, engine, run};

pub const FINALISE: &str = "SELECT awa.storage_auto_finalize_if_fresh('awa')";

/// What an adoption says it did.
#[derive(Debug, PartialEq, Eq, Clone, Copy, Default)]
pub struct Adopted {
    pub ready: i64,
    pub deferred: i64,
    pub skipped: i64,
}

pub async fn try_adopt(client: &Client, on_conflict: &str) -> Result<Adopted, tokio_postgres::Error> {
    let sql = "SELECT ready, deferred, skipped FROM awa_ingest.adopt($1)";
    let row = client.query_one(sql, &[&on_conflict]).await?;
    Ok(Adopted { ready: row.get(0), deferred: row.get(1), skipped: row.get(2) })
}

pub async fn adopt(client: &Client, on_conflict: &str) -> Adopted {
    try_adopt(client, on_conflict).await.expect("adopt")
}

/// Jobs of every sort in the embedded storage, over three ring slots.
async fn fill(client: &Client) {
    run(client, "INSERT INTO awa_ingest.queue_meta VALUES ('sharded', 4)").await;
    for slot in 0..3 {
        run(client, &format!("UPDATE awa_ingest.queue_ring_state SET current_slot = {slot}, generation = {slot}")).await;
        let batch: Value = (0..60).map(|n| job(slot * 60 + n)).collect();
        client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await.expect("awa.enqueue_batch");
    }
}

fn job(n: i64) -> Value {
    let queue = ["a", "b", "odd \"q\" é"][(n % 3) as usize];
    let mut job = json!({"kind": "step", "args": n, "queue": queue, "priority": 1 + n % 4, "max_attempts": 1 + n});
    match n % 8 {
        0 => job["run_at"] = json!(format!("2041-01-01T00:00:{:02}.{n:06}Z", n % 60)),
        1 => (job["metadata"], job["tags"]) = (json!({"n": n}), json!(["t", ""])),
        2 => (job["queue"], job["ordering_key"]) = (json!("sharded"), json!(format!("key {}", n % 5))),
        3 => job["unique"] = json!({"by_queue": true}),
        4 => (job["state"], job["run_at"], job["unique"]) = (json!("retryable"), json!("2042-01-01"), json!(true)),
        // awa fails on times that are further away than some weeks.
        5 => (job["state"], job["run_at"]) = (json!("available"), json!((Utc::now() - TimeDelta::days(1 + n % 2)).to_rfc3339())),
        6 => (job["unique_key"], job["unique_states"]) = (json!(format!("{n:08x}")), json!("00100000")),
        _ => {}
    }
    job
}

/// Everything a job keeps, by the number that is its args. `created_at` is only kept in its order.
pub async fn kept(client: &Client, schema: &str) -> BTreeMap<i64, Value> {
    let columns = "args::text::bigint, jsonb_build_array(kind, queue, priority, max_attempts, run_at, unique_key, unique_states, payload, attempt, run_lease)";
    let sql = format!(
        "SELECT {columns}, 'available' FROM {schema}.ready_entries UNION ALL SELECT {columns}, state::text FROM {schema}.deferred_jobs"
    );
    let rows = client.query(&sql, &[]).await.expect(&sql);
    rows.iter().map(|row| (row.get(0), json!([row.get::<_, Value>(1), row.get::<_, &str>(2)]))).collect()
}

/// The numbers of all jobs by their ids.
pub async fn in_order_of_ids(client: &Client, schema: &str) -> Value {
    let sql = format!(
        "SELECT coalesce(jsonb_agg(args ORDER BY job_id), '[]') FROM (SELECT job_id, args FROM {schema}.ready_entries UNION ALL SELECT job_id, args FROM {schema}.deferred_jobs) AS job"
    );
    client.query_one(&sql, &[]).await.expect(&sql).get(0)
}

/// The number of the jobs that were created later than one with a greater id.
async fn created_out_of_order(client: &Client, schema: &str) -> i64 {
    let sql = format!(
        "SELECT count(*) FROM (SELECT created_at < max(created_at) OVER (ORDER BY job_id) AS odd
            FROM (SELECT job_id, created_at FROM {schema}.ready_entries UNION ALL SELECT job_id, created_at FROM {schema}.deferred_jobs) AS job) AS job WHERE odd"
    );
    client.query_one(&sql, &[]).await.expect(&sql).get(0)
}

/// The numbers of the ready jobs of each lane, in its order.
async fn lanes(client: &Client, schema: &str) -> Vec<Value> {
    let sql = format!(
        "(SELECT queue, priority, enqueue_shard, jsonb_agg(args ORDER BY lane_seq) AS args FROM {schema}.ready_entries GROUP BY 1, 2, 3)"
    );
    rows(client, &sql, &[]).await
}

/// The keys that are held, with the numbers of their holders.
pub async fn claims(client: &Client, schema: &str) -> Vec<Value> {
    let sql = format!(
        "(SELECT encode(unique_key, 'hex') AS key, args FROM awa_or_embedded.job_unique_claims LEFT JOIN
            (SELECT job_id, args FROM {schema}.ready_entries UNION ALL SELECT job_id, args FROM {schema}.deferred_jobs) AS job USING (job_id))"
    );
    rows(client, &sql.replace("awa_or_embedded", if schema == "awa_ingest" { schema } else { "awa" }), &[]).await
}

/// An embedded storage with jobs, and an awa that came later.
async fn filled_then_awa() -> (Db, Client) {
    let db = Db::embedded().await;
    let client = db.connect().await;
    fill(&client).await;
    db.migrate_awa().await;
    run(&client, FINALISE).await;
    (db, client)
}

/// Jobs, claims and lanes: none is left.
pub async fn assert_embedded_is_empty(client: &Client, when: &str) {
    for table in ["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims"] {
        let left = rows(client, &Storage::Embedded.table(table), &[]).await;
        assert!(left.is_empty(), "{when}: {table} has {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_job_has_is_kept() {
    for shards_before in [false, true] {
        let (_db, client) = filled_then_awa().await;
        if shards_before {
            run(&client, "INSERT INTO awa.queue_meta (queue, enqueue_shards) VALUES ('sharded', 4)").await;
        }
        let (jobs, order, held) =
            (kept(&client, "awa_ingest").await, in_order_of_ids(&client, "awa_ingest").await, claims(&client, "awa_ingest").await);
        let before = lanes(&client, "awa_ingest").await;
        assert!(held.len() > 30 && held.iter().all(|claim| !claim["args"].is_null()));
        assert!(before.iter().any(|lane| lane["enqueue_shard"] != json!(0)), "several shards");
        let adopted = adopt(&client, "error").await;
        assert_eq!(adopted, Adopted { ready: 180 - 45, deferred: 45, skipped: 0 });

        assert_eq!(kept(&client, "awa").await, jobs);
        assert_eq!(in_order_of_ids(&client, "awa").await, order, "the order of ids");
        assert_eq!(created_out_of_order(&client, "awa").await, 0);
        assert_eq!(claims(&client, "awa").await, held);
        assert_embedded_is_empty(&client, "adopted").await;
        assert_lanes_are_whole(&client, "awa", "adopted").await;
        assert_lanes_keep_their_order(&before, &lanes(&client, "awa").await, shards_before);
        assert_eq!(adopt(&client, "error").await, Adopted::default(), "nothing is left to adopt");
    }
}

/// Jobs of a lane are in one lane afterwards, and in the same order; where awa has as many shards, it is the same lane.
fn assert_lanes_keep_their_order(before: &[Value], after: &[Value], same_shards: bool) {
    for lane in before {
        let same = |other: &&Value| {
            other["queue"] == lane["queue"]
                && other["priority"] == lane["priority"]
                && (!same_shards || other["enqueue_shard"] == lane["enqueue_shard"])
        };
        let jobs = lane["args"].as_array().expect("jobs");
        let found: Vec<&Value> = after
            .iter()
            .filter(same)
            .flat_map(|lane| lane["args"].as_array().expect("jobs"))
            .filter(|job| jobs.contains(job))
            .collect();
        assert_eq!(found, jobs.iter().collect::<Vec<_>>(), "{lane}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_what_was_adopted() {
    let (db, client) = filled_then_awa().await;
    let before = lanes(&client, "awa_ingest").await;
    run(&client, "UPDATE awa_ingest.deferred_jobs SET run_at = now()").await;
    // Jobs that awa has already are worked first, those that come afterwards last.
    run(&client, "SELECT awa.enqueue('step', '1000', 'a', 2::smallint)").await;
    adopt(&client, "error").await;
    run(&client, "SELECT awa.enqueue('step', '1001', 'a', 2::smallint)").await;
    let mut worker = Worker::builder().kind("step");
    for queue in ["a", "b", "odd \"q\" é", "sharded"] {
        worker = worker.queue(queue);
    }
    let worker = worker.start(&db).await;
    worker.wait_for(182).await;
    let worked: Vec<Value> = worker.stop().await.into_iter().map(|job| job.args).collect();
    for lane in before {
        let mut jobs = lane["args"].as_array().expect("jobs").clone();
        if lane["queue"] == "a" && lane["priority"] == 2 {
            jobs.insert(0, json!(1000));
            jobs.push(json!(1001));
        }
        let order: Vec<&Value> = worked.iter().filter(|args| jobs.contains(args)).collect();
        assert_eq!(order, jobs.iter().collect::<Vec<_>>(), "{lane}");
    }
}

/// A key that awa's side holds: an error moves nothing, and skipping leaves just that job.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_taken() {
    for state in ["active", "canonical"] {
        let db = Db::embedded().await;
        let client = db.connect().await;
        let unique = |n: i64| json!({"kind": "once", "args": n, "unique": true});
        let mut deferred = unique(3);
        deferred["run_at"] = json!("2041-01-01");
        let batch = json!([{"kind": "once", "args": 0}, unique(1), unique(2), deferred, unique(4)]);
        client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await.unwrap();
        db.migrate_awa().await;
        run(&client, FINALISE).await;
        run(&client, &engine(state)).await;
        client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&json!([unique(2), unique(3)])]).await.unwrap();

        let jobs = kept(&client, "awa_ingest").await;
        let refused = failure(try_adopt(&client, "error").await);
        assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"), "{refused:?}");
        let refused = failure(client.batch_execute("SELECT awa_ingest.adopt()").await);
        assert_eq!(refused.sqlstate, "23505", "error is the default");
        assert_eq!(kept(&client, "awa_ingest").await, jobs);
        assert_eq!(awas_jobs(&client).await, [2, 3], "{state}");

        assert_eq!(adopt(&client, "skip").await, Adopted { ready: 3, deferred: 0, skipped: 2 }, "{state}");
        assert_eq!(kept(&client, "awa_ingest").await.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(awas_jobs(&client).await, [0, 1, 2, 3, 4], "{state}");
        assert_eq!(claims(&client, "awa_ingest").await.len(), 2, "those that stay keep their keys");
        assert_lanes_are_whole(&client, "awa_ingest", state).await;
        assert_eq!(adopt(&client, "skip").await, Adopted { skipped: 2, ..Default::default() });

        // What stayed may follow when its key is free.
        run(&client, "DELETE FROM awa.job_unique_claims WHERE job_id IN (SELECT id FROM awa.jobs WHERE args IN ('2', '3'))").await;
        assert_eq!(adopt(&client, "error").await, Adopted { ready: 1, deferred: 1, skipped: 0 });
        assert_embedded_is_empty(&client, state).await;
        assert_eq!(awas_jobs(&client).await, [0, 1, 2, 2, 3, 3, 4], "{state}");
    }
}

async fn awas_jobs(client: &Client) -> Vec<i64> {
    let rows = client.query("SELECT args::text::bigint FROM awa.jobs ORDER BY 1", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_canonical_engine_adopts() {
    for state in ["canonical", "prepared"] {
        let (_db, client) = filled_then_awa().await;
        run(&client, &engine(state)).await;
        let (order, held) = (in_order_of_ids(&client, "awa_ingest").await, claims(&client, "awa_ingest").await);
        let columns =
            "jsonb_build_array(kind, queue, priority, max_attempts, run_at, encode(unique_key, 'hex'), unique_states, args";
        let embedded = format!(
            "(SELECT {columns}, coalesce(payload->'metadata', '{{}}'), coalesce(payload->'tags', '[]')) AS job FROM (SELECT *, 'available' AS state FROM awa_ingest.ready_entries) AS r
              UNION ALL SELECT {columns}, coalesce(payload->'metadata', '{{}}'), coalesce(payload->'tags', '[]')) FROM awa_ingest.deferred_jobs)"
        );
        let jobs = rows(&client, &embedded, &[]).await;
        assert_eq!(adopt(&client, "error").await, Adopted { ready: 180 - 45, deferred: 45, skipped: 0 });
        let canonical = format!("(SELECT {columns}, metadata, to_jsonb(tags)) AS job FROM awa.jobs)");
        awa_ingest_tests::assert_same_rows(state, &jobs, &rows(&client, &canonical, &[]).await);
        let ids: Value = client.query_one("SELECT jsonb_agg(args ORDER BY id) FROM awa.jobs", &[]).await.unwrap().get(0);
        assert_eq!(ids, order, "{state}");
        let holders = "(SELECT encode(c.unique_key, 'hex') AS key, args FROM awa.job_unique_claims AS c LEFT JOIN awa.jobs AS j ON j.id = job_id)";
        assert_eq!(rows(&client, holders, &[]).await, held, "{state}");
        assert_eq!(rows(&client, "awa.scheduled_jobs", &[]).await.len(), 45);
        assert_embedded_is_empty(&client, state).await;
    }
}

/// Jobs that waited so long that awa could not reckon their age are due now, in their order; what awa cannot read stays where it is.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_waited_for_weeks_are_due_now() {
    for state in ["active", "canonical"] {
        let db = Db::embedded().await;
        let client = db.connect().await;
        let times = ["2001-01-01", "2001-01-02", "yesterday", "4714-11-24 BC", "2099-01-01"];
        let batch: Value =
            times.iter().map(|time| json!({"kind": "k", "state": "available", "run_at": time, "args": time})).collect();
        client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await.unwrap();
        db.migrate_awa().await;
        run(&client, FINALISE).await;
        run(&client, &engine(state)).await;
        for time in ["infinity", "-infinity"] {
            let put = format!("UPDATE awa_ingest.ready_entries SET run_at = '{time}' WHERE args = '\"yesterday\"'");
            run(&client, &put).await;
            assert_eq!(failure(try_adopt(&client, "error").await).sqlstate, "22008", "{state}, {time}");
        }
        run(&client, "UPDATE awa_ingest.ready_entries SET run_at = 'yesterday' WHERE args = '\"yesterday\"'").await;
        assert_eq!(adopt(&client, "error").await, Adopted { ready: 5, deferred: 0, skipped: 0 }, "{state}");
        assert_embedded_is_empty(&client, state).await;
        let due = "SELECT array_agg(run_at > now() - interval '5 min' AND run_at < now() ORDER BY id) FROM awa.jobs";
        let due: Vec<bool> = client.query_one(due, &[]).await.unwrap().get(0);
        let expected = if state == "active" { [true, true, false, true, true] } else { [false; 5] };
        assert_eq!(due, expected, "{state}");
        if state == "active" {
            assert_lanes_are_whole(&client, "awa", state).await;
            let worker = Worker::builder().queue("default").kind("k").start(&db).await;
            worker.wait_for(5).await;
            let worked: Vec<Value> = worker.stop().await.into_iter().map(|job| job.args).collect();
            assert_eq!(worked, times.map(Value::from));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_schema_adopts() {
    let (db, client) = filled_then_awa().await;
    QueueStorage::new(QueueStorageConfig { schema: "mine".into(), ..Default::default() })
        .unwrap()
        .install(&db.pool().await)
        .await
        .unwrap();
    let (jobs, order, held) =
        (kept(&client, "awa_ingest").await, in_order_of_ids(&client, "awa_ingest").await, claims(&client, "awa_ingest").await);
    adopt(&client, "error").await;
    assert_eq!((kept(&client, "mine").await, in_order_of_ids(&client, "mine").await), (jobs, order));
    assert_eq!(claims(&client, "mine").await, held);
    assert_lanes_are_whole(&client, "mine", "a custom schema").await;
    let elsewhere = rows(&client, "(SELECT FROM awa.ready_entries UNION ALL SELECT FROM awa.deferred_jobs)", &[]).await;
    assert!(elsewhere.is_empty(), "not in awa's own schema");
}
