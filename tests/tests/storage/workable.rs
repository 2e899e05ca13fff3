//! awa 0.6.9 takes jobs into its storage that its workers then fail on, with all jobs behind them: those are refused, and a real
//! worker works what is let through at the borders.

use std::time::Duration;

use awa_ingest_tests::{DEADLINE, Db, Storage, Worker, failure, rows, wait_until};
use awa_model::admin;
use chrono::{TimeDelta, Utc};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::Client;

/// The three functions, fed with a job object as text: behind two good jobs where they take several.
const SINGLE: &str = "SELECT awa.enqueue(j->>'kind', j->'args', run_at => (j->>'run_at')::timestamptz, metadata => j->'metadata')
    FROM (VALUES ($1::text::jsonb)) AS v (j)";
const BATCH: &str =
    r#"SELECT awa.enqueue_batch('[{"kind": "good", "unique": true}, {"kind": "good"}]' || jsonb_build_array($1::text::jsonb))"#;
const BATCH_PLAIN: &str = "SELECT awa.enqueue_batch(jsonb_build_array($1::text::jsonb))";
const COLUMNS: &str = "SELECT awa.enqueue_columns(ARRAY['good', 'good', j->>'kind'], args => ARRAY[NULL, NULL, j->'args'],
    run_at => ARRAY[NULL, NULL, (j->>'run_at')::timestamptz], metadata => ARRAY[NULL, NULL, j->'metadata'])
    FROM (VALUES ($1::text::jsonb)) AS v (j)";

fn arrays(levels: usize) -> String {
    format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
}

fn objects(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

fn with(key: &str, value: &str) -> String {
    format!(r#"{{"kind": "k", "{key}": {value}}}"#)
}

fn in_state(state: &str, run_at: &str) -> String {
    format!(r#"{{"kind": "k", "state": "{state}", "run_at": "{run_at}"}}"#)
}

fn from_now(distance: TimeDelta) -> String {
    (Utc::now() + distance).to_rfc3339()
}

/// Values that any of the functions can be given.
fn unreadable() -> Vec<(String, &'static str)> {
    // serde_json's rounding takes the greatest double, whose digits PostgreSQL writes out, beyond all doubles.
    let numbers = ["1e309", "-1e309", "1e400", r#"{"a": [1, {"b": [1e400]}]}"#, "1.7976931348623157e308"];
    let mut jobs: Vec<_> = numbers.iter().map(|number| (with("args", number), "22003")).collect();
    jobs.push((with("metadata", r#"{"m": [-1e309]}"#), "22003"));
    for args in [arrays(128), objects(128), arrays(129), objects(4000)] {
        jobs.push((with("args", &args), "54000"));
    }
    for metadata in [objects(127), objects(4000), format!(r#"{{"m": {}}}"#, arrays(126))] {
        jobs.push((with("metadata", &metadata), "54000"));
    }
    for run_at in UNREADABLE_TIMES {
        jobs.push((with("run_at", &format!("\"{run_at}\"")), "22008"));
    }
    jobs
}

/// What chrono, by which awa reads times, does not have.
const UNREADABLE_TIMES: [&str; 4] = ["-infinity", "infinity", "262143-01-01 00:00:00+00", "294276-12-31"];

/// The last time that it has.
const LAST_TIME: &str = "262142-12-31T23:59:59.999999Z";

/// Times of available jobs so far from now that awa's claim function cannot reckon an age.
fn far_times() -> Vec<String> {
    let beyond = TimeDelta::days(22) + TimeDelta::minutes(1);
    let mut times: Vec<_> = ["epoch", "4714-11-24 BC", LAST_TIME].map(str::to_owned).to_vec();
    times.extend([from_now(-beyond), from_now(beyond)]);
    times
}

/// Times that only job objects can combine with a state.
fn untimely() -> Vec<String> {
    let times =
        UNREADABLE_TIMES.into_iter().flat_map(|time| ["scheduled", "retryable", "available"].map(|state| in_state(state, time)));
    times.chain(far_times().iter().map(|time| in_state("available", time))).collect()
}

/// What awa reads, but only just, and no more than just.
fn borders() -> Vec<String> {
    let within = TimeDelta::days(22) - TimeDelta::minutes(1);
    vec![
        with("args", &arrays(127)),
        with("args", &objects(127)),
        with("metadata", &objects(126)),
        with("metadata", &format!(r#"{{"m": {}}}"#, arrays(125))),
        with("args", "[1.797e308, -1.797e308, 1e-400, 123456789012345678901234567890]"),
        with("metadata", r#"{"n": 1e308}"#),
        in_state("available", &from_now(-within)),
        in_state("available", &from_now(within)),
        in_state("scheduled", "1900-01-01"),
        in_state("retryable", "epoch"),
        in_state("scheduled", "4714-11-24 BC"),
        in_state("scheduled", LAST_TIME),
    ]
}

async fn assert_refused(client: &Client, sql: &str, job: &str, sqlstate: &str) {
    let refused = failure(client.execute(sql, &[&job]).await);
    let ordinal = if sql == SINGLE { 1 } else { 3 };
    let found = (refused.sqlstate.as_str(), refused.ordinal());
    assert_eq!(found, (sqlstate, Some(ordinal)), "{job:.80} by {sql:.25}: {refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stops_awas_workers_is_refused() {
    let client = Db::awa().await.connect().await;
    for (job, sqlstate) in unreadable() {
        for sql in [SINGLE, BATCH, COLUMNS] {
            assert_refused(&client, sql, &job, sqlstate).await;
        }
    }
    for job in untimely() {
        assert_refused(&client, BATCH, &job, "22008").await;
    }
    for table in ["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims", "queue_lanes"] {
        assert_eq!(rows(&client, &format!("awa.{table}"), &[]).await, Vec::<Value>::new(), "{table}");
    }
}

/// The embedded storage has no workers that read JSON or times in their own way.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_storage_takes_what_postgres_takes() {
    let client = Db::embedded().await.connect().await;
    let mut jobs = untimely();
    jobs.extend(borders());
    for (job, _) in unreadable() {
        for sql in [SINGLE, COLUMNS] {
            client.execute(sql, &[&job]).await.unwrap_or_else(|error| panic!("{job:.80}: {error:?}"));
        }
        jobs.push(job);
    }
    for job in jobs {
        let batch = format!("[{job}]");
        let taken = client.execute("SELECT awa.enqueue_batch($1::text::jsonb)", &[&batch]).await;
        taken.unwrap_or_else(|error| panic!("{job:.80}: {error:?}"));
    }
}

/// On both storages a number has no key if awa's clients have none.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_needs_numbers_that_a_double_holds() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let job = r#"{"kind": "k", "args": [1e309], "unique": true}"#;
        assert_refused(&client, BATCH, job, "22003").await;
        let readable = job.replace("1e309", "1e308");
        client.execute(BATCH, &[&readable]).await.expect("within a double");
    }
}

/// Each in a database of its own, ahead of two good jobs: one in the same lane, and one among the deferred.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_what_is_let_through() {
    let mut drained = JoinSet::new();
    for job in borders() {
        let db = Db::awa().await;
        drained.spawn(async move { assert_worked(&db, &job).await });
    }
    drained.join_all().await;
}

async fn assert_worked(db: &Db, job: &str) {
    let client = db.connect().await;
    let (plain, due) = (with("args", "2"), with("run_at", r#""yesterday""#));
    let batch = format!("[{job}, {plain}, {due}]");
    client.execute("SELECT awa.enqueue_batch($1::text::jsonb)", &[&batch]).await.expect("readable jobs");
    let never_due = job.contains(LAST_TIME);
    let expected = if never_due { 2 } else { 3 };

    let worker = Worker::builder().queue("default").kind("k").start(db).await;
    let completed = format!("SELECT count(*) = {expected} FROM awa.jobs WHERE state = 'completed'");
    let drained = timeout(DEADLINE / 2, wait_until(&client, &completed)).await;
    assert!(drained.is_ok(), "{:?} were worked of {job:.120}", worker.seen().iter().map(|job| job.id).collect::<Vec<_>>());
    assert_eq!(worker.stop().await.len(), expected, "each once, {job:.120}");
    assert_eq!(rows(&client, "awa.deferred_jobs", &[]).await.len(), usize::from(never_due), "{job:.120}");
    let listed = admin::list_jobs(&db.pool().await, &Default::default()).await;
    assert_eq!(listed.expect("awa's list").len(), 3, "{job:.120}");
}

/// The proof for what is refused: put there by awa's own function, such a job keeps the whole queue from being claimed.
#[tokio::test(flavor = "multi_thread")]
async fn far_times_stop_awas_workers() {
    // A smallint has no more minutes. What is refused begins a little earlier: a job needs some time until it is claimed.
    let beyond = TimeDelta::minutes(i64::from(i16::MAX) + 2);
    for time in [&*from_now(-beyond), &from_now(beyond), "epoch", "4714-11-24 BC", LAST_TIME] {
        assert_stops(time).await;
    }
}

async fn assert_stops(time: &str) {
    let db = Db::awa().await;
    let client = db.connect().await;
    let both = format!("SELECT awa.insert_job_compat('good', p_run_at => '{time}'), awa.insert_job_compat('good')");
    client.batch_execute(&both).await.expect(&both);
    let worker = Worker::builder().queue("default").kind("good").start(&db).await;
    // Lines name their database: other tests fail there, too.
    let ours = format!("] {} ERROR:  smallint out of range", db.name());
    let fails = async {
        while db.cluster().log().matches(&ours).count() < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(timeout(DEADLINE, fails).await.is_ok(), "{time}: no claim fails");
    assert_eq!(worker.stop().await.len(), 0, "{time}");
}

/// The same for deferred jobs: awa's clients panic where they list, get or cancel them.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_times_panic_awas_clients() {
    for time in UNREADABLE_TIMES {
        let db = Db::awa().await;
        let client = db.connect().await;
        let put = format!("SELECT (awa.insert_job_compat('k', p_state => 'scheduled', p_run_at => '{time}')).id");
        let id: i64 = client.query_one(&put, &[]).await.expect(&put).get(0);
        let (list, get, cancel) = (db.pool().await, db.pool().await, db.pool().await);
        let attempts = [
            tokio::spawn(async move { admin::list_jobs(&list, &Default::default()).await.map(drop) }),
            tokio::spawn(async move { admin::get_job(&get, id).await.map(drop) }),
            tokio::spawn(async move { admin::cancel(&cancel, id).await.map(drop) }),
        ];
        for attempt in attempts {
            assert!(attempt.await.is_err_and(|error| error.is_panic()), "{time}");
        }
    }
}

/// Warnings in the server's log about this job, which is taken. Lines name their database: other tests are warned, too.
async fn warnings(db: &Db, client: &Client, job: &str) -> usize {
    let ours = format!("] {} WARNING:", db.name());
    let count = || db.cluster().log().lines().filter(|l| l.contains(&ours) && l.contains("available jobs have a run_at")).count();
    let before = count();
    client.execute(BATCH_PLAIN, &[&job]).await.unwrap_or_else(|error| panic!("{job}: {error:?}"));
    count() - before
}

/// An available job does not wait for its time.
#[tokio::test]
async fn available_jobs_with_a_later_time_are_warned_of() {
    let db = Storage::Attached.db().await;
    let client = db.connect().await;
    for (time, warned) in
        [(from_now(TimeDelta::days(21)), 1), (from_now(TimeDelta::hours(1)), 1), (from_now(TimeDelta::days(-21)), 0)]
    {
        assert_eq!(warnings(&db, &client, &in_state("available", &time)).await, warned, "{time}");
        assert_eq!(warnings(&db, &client, &in_state("scheduled", &time)).await, 0, "{time}");
    }
    assert_eq!(warnings(&db, &client, r#"{"kind": "k"}"#).await, 0);
}
