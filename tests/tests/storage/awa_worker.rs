//! A real awa worker drains what SQL enqueued and sees the values that were sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use awa::JobRow;
use awa_ingest_tests::{Db, Storage, Worker, jobs, rows, wait_until};
use awa_model::queue_storage::shard_for_ordering_key;
use awa_model::{InsertOpts, InsertParams, JobState, QueueStorageConfig, UniqueOpts};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use tokio_postgres::Client;

/// Jobs that use every option, with their ordinal in `args.n`.
fn varied_jobs(count: usize) -> Vec<InsertParams> {
    (0..count)
        .map(|n| {
            let opts = InsertOpts {
                queue: ["mail", "reports"][n % 2].to_owned(),
                priority: 1 + (n % 4) as i16,
                max_attempts: 1 + (n % 1000) as i16,
                metadata: if n % 3 == 0 { json!({}) } else { json!({"trace": format!("t-{n}"), "deep": {"é": [n, null]}}) },
                tags: (0..n % 4).map(|t| format!("tag {t}, \"quoted\" \u{1F680}")).collect(),
                unique: (n % 5 == 0).then(UniqueOpts::default),
                ..Default::default()
            };
            jobs::job_with(["send", "render"][n % 3 % 2], json!({"n": n, "text": "a'b\"c\\d\n\u{2028}", "f": 0.1}), opts)
        })
        .collect()
}

async fn drain(db: &Db, count: usize) -> Vec<JobRow> {
    let worker = Worker::builder().queue("mail").queue("reports").kind("send").kind("render").start(db).await;
    worker.wait_for(count).await;
    let seen = worker.stop().await;
    assert_eq!(seen.len(), count, "no job is worked twice");
    seen
}

fn by_id(seen: &[JobRow]) -> BTreeMap<i64, &JobRow> {
    seen.iter().map(|job| (job.id, job)).collect()
}

#[track_caller]
fn assert_as_sent(sent: &InsertParams, seen: &JobRow) {
    let opts = &sent.opts;
    assert_eq!((&seen.kind, &seen.args, &seen.queue), (&sent.kind, &sent.args, &opts.queue));
    assert_eq!((seen.priority, seen.max_attempts, seen.attempt), (opts.priority, opts.max_attempts, 1));
    assert_eq!((&seen.metadata, &seen.tags), (&opts.metadata, &opts.tags));
    let prepared = awa_model::prepare_raw_job_insert(sent.kind.clone(), sent.args.clone(), opts.clone()).unwrap();
    assert_eq!(seen.unique_key.as_deref(), prepared.unique_key());
}

async fn server_time(client: &Client) -> DateTime<Utc> {
    client.query_one("SELECT clock_timestamp()", &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_sees_what_each_function_was_sent() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let sent = varied_jobs(60);
    let before = server_time(&client).await;
    let mut ids = Vec::new();
    ids.extend(jobs::enqueue_batch(&client, &sent[..20]).await.iter().map(|e| e.job_id.unwrap()));
    ids.extend(jobs::enqueue_columns(&client, &sent[20..40]).await.iter().map(|e| e.job_id.unwrap()));
    for job in &sent[40..] {
        ids.push(jobs::enqueue(&client, job).await);
    }
    let after = server_time(&client).await;
    assert!(ids.is_sorted(), "ids ascend in input order: {ids:?}");

    let seen = drain(&db, sent.len()).await;
    let seen = by_id(&seen);
    for (job, id) in sent.iter().zip(&ids) {
        assert_as_sent(job, seen[id]);
        assert!((before..=after).contains(&seen[id].run_at), "ready jobs run at the time they were enqueued");
        assert!((before..=after).contains(&seen[id].created_at));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_every_lane_in_order() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let sent: Vec<_> = varied_jobs(400);
    for batch in sent.chunks(100) {
        jobs::enqueue_batch(&client, batch).await;
    }
    let seen = drain(&db, sent.len()).await;
    let mut lanes: BTreeMap<(&str, i16), Vec<u64>> = BTreeMap::new();
    for job in &seen {
        lanes.entry((&job.queue, job.priority)).or_default().push(job.args["n"].as_u64().unwrap());
    }
    assert_eq!(lanes.len(), 4, "two queues with two priorities each");
    for (lane, order) in lanes {
        assert!(order.is_sorted(), "{lane:?}: {order:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_four_shards_in_the_order_of_each_key() {
    let db = Db::awa().await;
    let client = db.connect().await;
    Storage::Attached.shard(&client, "mail", 4).await;
    let key = |n: usize| vec![b'c', (n % 12) as u8, 0xff];
    let sent: Vec<_> = (0..240)
        .map(|n| {
            let opts = InsertOpts { queue: "mail".into(), ordering_key: Some(key(n)), ..Default::default() };
            jobs::job_with("send", json!({"n": n}), opts)
        })
        .collect();
    for batch in sent.chunks(80) {
        jobs::enqueue_batch(&client, batch).await;
    }

    let ready = client.query("SELECT (args->>'n')::int, enqueue_shard FROM awa.ready_entries", &[]).await.unwrap();
    let mut shards = BTreeSet::new();
    for row in ready {
        let (n, shard) = (row.get::<_, i32>(0) as usize, row.get::<_, i16>(1));
        assert_eq!(shard, shard_for_ordering_key(&key(n), 4));
        shards.insert(shard);
    }
    assert_eq!(shards, BTreeSet::from([0, 1, 2, 3]));

    let mut by_key: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for job in drain(&db, sent.len()).await {
        let n = job.args["n"].as_u64().unwrap() as usize;
        by_key.entry(n % 12).or_default().push(n);
    }
    assert!(by_key.values().all(|order| order.is_sorted()), "{by_key:?}");
}

/// Without a key a call's jobs share one shard per queue and priority, and calls take turns.
#[tokio::test(flavor = "multi_thread")]
async fn it_works_four_shards_without_keys() {
    let db = Db::awa().await;
    let client = db.connect().await;
    Storage::Attached.shard(&client, "mail", 4).await;
    for call in 0..16 {
        let opts = InsertOpts { queue: "mail".into(), ..Default::default() };
        let batch: Vec<_> = (0..5).map(|n| jobs::job_with("send", json!({"call": call, "n": n}), opts.clone())).collect();
        jobs::enqueue_batch(&client, &batch).await;
    }
    let per_call = "(SELECT count(DISTINCT enqueue_shard) AS shards FROM awa.ready_entries GROUP BY args->'call')";
    assert_eq!(rows(&client, per_call, &[]).await, vec![json!({"shards": 1}); 16]);
    let in_all = "(SELECT count(DISTINCT enqueue_shard) AS shards FROM awa.ready_entries)";
    assert_eq!(rows(&client, in_all, &[]).await, [json!({"shards": 4})]);
    drain(&db, 80).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_scheduled_jobs_when_they_are_due() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let now = server_time(&client).await;
    let (due, soon, later) = (now - TimeDelta::hours(1), now + TimeDelta::milliseconds(400), now + TimeDelta::hours(1));
    let sent: Vec<_> = varied_jobs(30)
        .into_iter()
        .enumerate()
        .map(|(n, mut job)| {
            job.opts.run_at = Some([due, soon, later][n % 3]);
            job
        })
        .collect();
    let ids: Vec<_> = jobs::enqueue_batch(&client, &sent).await.iter().map(|e| e.job_id.unwrap()).collect();
    assert!(rows(&client, "awa.ready_entries", &[]).await.is_empty(), "a job with run_at waits among the deferred");

    let seen = drain(&db, 20).await;
    let seen = by_id(&seen);
    for (job, id) in sent.iter().zip(&ids).filter(|(job, _)| job.opts.run_at != Some(later)) {
        assert_as_sent(job, seen[id]);
        assert!(seen[id].attempted_at >= job.opts.run_at, "not before it is due");
    }
    let waiting = "(SELECT job_id, state, run_at FROM awa.deferred_jobs)";
    let waiting: BTreeSet<_> = rows(&client, waiting, &[]).await.iter().map(|row| row["job_id"].as_i64().unwrap()).collect();
    assert_eq!(waiting, ids.iter().skip(2).step_by(3).copied().collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_jobs_that_start_as_retryable() {
    let db = Db::awa().await;
    let client = db.connect().await;
    // Not long ago: awa 0.6.9 cannot claim a ready job that has been due for 23 days (its aging overflows a smallint).
    let due = server_time(&client).await - TimeDelta::hours(1);
    let job = |n: i32, state: &str| json!({"kind": "send", "queue": "mail", "state": state, "run_at": due, "args": {"n": n}});
    client
        .query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&json!([job(0, "retryable"), job(1, "available")])])
        .await
        .unwrap();
    let deferred = client.query_one("SELECT state::text, run_at, args->'n' FROM awa.deferred_jobs", &[]).await.unwrap();
    assert_eq!((deferred.get(0), deferred.get(1), deferred.get(2)), ("retryable", due, json!(0)));
    let ready = client.query_one("SELECT run_at, args->'n' FROM awa.ready_entries", &[]).await.unwrap();
    assert_eq!((ready.get(0), ready.get(1)), (due, json!(1)));
    drain(&db, 2).await;
}

/// A worker that polls once in ten minutes gets the job only if it is woken.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_woken() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let worker = Worker::builder().queue("mail").kind("send").poll_interval(Duration::from_secs(600)).start(&db).await;
    let listening = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'LISTEN%awa:mail%' AND state = 'idle'
                     AND datname = current_database()";
    wait_until(&client, listening).await;
    for n in 0..3 {
        let opts = InsertOpts { queue: "mail".into(), ..Default::default() };
        jobs::enqueue(&client, &jobs::job_with("send", json!({"n": n}), opts)).await;
        worker.wait_for(n + 1).await;
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_striped_queues() {
    let db = Db::awa().await;
    let client = db.connect().await;
    client.batch_execute("SET awa_ingest.queue_stripe_count = '4'").await.unwrap();
    let sent = varied_jobs(80);
    jobs::enqueue_batch(&client, &sent).await;

    let striped = QueueStorageConfig { queue_stripe_count: 4, ..Default::default() };
    let worker = Worker::builder().queue("mail").queue("reports").kind("send").kind("render").storage(striped);
    let worker = worker.start(&db).await;
    worker.wait_for(sent.len()).await;
    let ordinals: BTreeSet<_> = worker.stop().await.iter().map(|job| job.args["n"].as_u64().unwrap()).collect();
    assert_eq!(ordinals, (0..80).collect());
}

/// Everything a worker did is complete: nothing is left over in any state but completed and scheduled.
#[tokio::test(flavor = "multi_thread")]
async fn it_leaves_nothing_behind() {
    let db = Db::awa().await;
    let client = db.connect().await;
    jobs::enqueue_batch(&client, &varied_jobs(100)).await;
    let worker = Worker::builder().queue("mail").queue("reports").kind("send").kind("render").max_workers(8);
    let worker = worker.rotate_every(Duration::from_millis(50)).start(&db).await;
    for batch in varied_jobs(400)[100..].chunks(50) {
        jobs::enqueue_batch(&client, batch).await;
    }
    worker.wait_for(400).await;
    let ids: BTreeSet<_> = worker.stop().await.iter().map(|job| job.id).collect();
    assert_eq!(ids.len(), 400);
    let left = format!("(SELECT id FROM awa.jobs WHERE state <> '{}')", JobState::Completed);
    assert_eq!(rows(&client, &left, &[]).await, [] as [serde_json::Value; 0]);
}
