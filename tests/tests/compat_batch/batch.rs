//! `insert_jobs_compat_batch`: what it takes, what it writes, and the rows that it returns.

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Db, Storage, Stored, Template, assert_lanes_intact, rows};
use awa_model::queue_storage::shard_for_ordering_key;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::calls::{compat_batch, deferred, ids, keyed, plain, shown, skip_unique, with_key};
use crate::{attached, numbers, old};

/// Jobs of every sort over queues, priorities and states in no order, told apart by `args.n`. No two have the same key.
pub fn jobs_of_every_sort() -> Vec<Row> {
    (0..90)
        .map(|n| {
            let mut row = plain(["beta", "alpha", "Ünïcode \"q\" 🚀", "default"][n % 4], n as i64);
            row.priority = [None, Some(3), Some(1), Some(4), Some(2)][n % 5];
            row.max_attempts = [None, Some(1), Some(1000)][n % 3];
            row.metadata = [None, Some(json!({})), Some(json!({"k": {"é": [1.5, null]}}))][n % 3].clone();
            let tags = ["a, \"b\"", "\\", "", "NULL"].map(str::to_owned).to_vec();
            row.tags = [None, Some(vec![]), Some(tags)][n / 3 % 3].clone();
            row.state = [None, Some("available"), Some("scheduled"), None, Some("retryable")][n / 2 % 5].map(str::to_owned);
            let later = "2041-05-06T07:08:09.000001Z".parse().expect("a time");
            row.run_at = (n % 4 == 1).then(|| if is_deferred(&row) { later } else { yesterday() });
            let states = ["11111000", "01000000", "10000000", "00000000"][n / 4 % 4];
            if n % 3 == 0 { with_key(row, n as u32, states) } else { row }
        })
        .collect()
}

/// awa's workers take no available job that is due weeks ago.
fn yesterday() -> DateTime<Utc> {
    DateTime::from_timestamp_micros(Utc::now().timestamp_micros()).expect("a time") - TimeDelta::days(1)
}

fn is_deferred(row: &Row) -> bool {
    row.state.as_deref().is_some_and(|state| state != "available")
}

/// What `awa.jobs` shows, in the same order and with all columns.
pub async fn assert_as_shown(client: &Client, jobs: &[Value], when: &str) {
    for (job, shown) in jobs.iter().zip(shown(client, &ids(jobs)).await) {
        assert_eq!(*job, shown, "{when}");
        assert_eq!(job.as_object().expect("a row").len(), 27, "{when}: {job}");
    }
    assert!(ids(jobs).is_sorted_by(|a, b| a < b), "{when}: ids ascend in input order");
}

/// Names and types of the columns that a query returns.
async fn shape(client: &Client, sql: &str) -> Vec<(String, String)> {
    let statement = client.prepare(sql).await.expect(sql);
    statement.columns().iter().map(|column| (column.name().to_owned(), column.type_().to_string())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_back_in_input_order_as_awa_shows_them() {
    let client = attached().await.connect().await;
    let sent = jobs_of_every_sort();
    let returned = compat_batch(&client, &sent, false).await.expect("the batch");
    assert_eq!(returned.iter().map(|job| job["args"]["n"].as_i64().unwrap()).collect::<Vec<_>>(), (0..90).collect::<Vec<_>>());
    assert_as_shown(&client, &returned, "the batch").await;
    assert_lanes_intact(&client, "awa", "the batch").await;

    let skipped = compat_batch(&client, &sent[..12], true).await.expect("the same again");
    assert_as_shown(&client, &skipped, "skipping").await;
    let objects = skip_unique(&client, &[deferred(plain("alpha", 100)), keyed(9999, "beta", 101), plain("beta", 102)]).await;
    assert_as_shown(&client, &objects.expect("objects"), "objects").await;

    let columns = shape(&client, "SELECT * FROM awa.jobs").await;
    assert_eq!(columns.len(), 27);
    for function in ["insert_jobs_compat_batch('{}')", "insert_many_skip_unique_conflicts('[]')", "last_ingest_jobs()"] {
        assert_eq!(shape(&client, &format!("SELECT * FROM awa_ingest.{function}")).await, columns, "{function}");
    }
}

/// Its rows and what it leaves behind are those of awa's own function, job by job, in a database that knows no extension.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_equal_those_of_awas_own_function() {
    let (awas, ours) = (Db::of(Template::AwaOnly).await.connect().await, attached().await.connect().await);
    let sent = jobs_of_every_sort();
    let mut expected = Vec::new();
    for row in &sent {
        expected.push(old::insert(&awas, "awa", row).await.expect("awa's function"));
    }
    let found = compat_batch(&ours, &sent, false).await.expect("the batch");
    assert_eq!(found.len(), sent.len());
    for ((row, expected), found) in sent.iter().zip(&expected).zip(&found) {
        assert_eq!(without_ids_and_times(found, row), without_ids_and_times(expected, row));
    }
    let expected = Stored::read_by_job(&awas, Storage::Attached).await;
    expected.assert_same(&Stored::read_by_job(&ours, Storage::Attached).await, "insert_job_compat and insert_jobs_compat_batch");
}

fn without_ids_and_times(job: &Value, sent: &Row) -> Value {
    let mut job = job.clone();
    let columns = job.as_object_mut().expect("a row");
    for column in ["id", "created_at"] {
        assert!(columns.remove(column).is_some_and(|value| !value.is_null()), "{column}");
    }
    if sent.run_at.is_none() {
        assert!(columns.remove("run_at").is_some_and(|value| !value.is_null()));
    }
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_batches_are_empty() {
    let client = attached().await.connect().await;
    for call in [
        "insert_jobs_compat_batch('{}')",
        "insert_jobs_compat_batch(kind => '{}', queue => '{}', args => '{}', skip_conflicts => true)",
        "insert_many_skip_unique_conflicts('[]')",
        "insert_many_skip_unique_conflicts(NULL)",
    ] {
        let sql = format!("SELECT id FROM awa_ingest.{call}");
        assert_eq!(client.query(&sql, &[]).await.expect(&sql).len(), 0, "{call}");
    }
    assert!(compat_batch(&client, &[], true).await.expect("no job").is_empty());
    awa_ingest_tests::assert_nothing_stored(&client, Storage::Attached, "empty batches").await;
}

/// An array that is NULL, and an element that is NULL, stand for the default.
#[tokio::test(flavor = "multi_thread")]
async fn null_is_the_default() {
    let client = attached().await.connect().await;
    let nulls = "array_fill(NULL::text, '{2}')";
    for call in [
        "insert_jobs_compat_batch('{a,b}')".to_owned(),
        format!(
            "insert_jobs_compat_batch('{{a,b}}', {nulls}, {nulls}::jsonb[], {nulls}, {nulls}::smallint[], {nulls}::smallint[],
                 {nulls}::timestamptz[], {nulls}::jsonb[], {nulls}::jsonb[], {nulls}::bytea[], {nulls}, {nulls}::bytea[], false)"
        ),
        "insert_jobs_compat_batch('{a,b}', NULL, NULL, ARRAY[NULL], ARRAY[NULL]::smallint[])".to_owned(),
    ] {
        let sql = format!(
            "SELECT to_jsonb(job) - '{{id,run_at,created_at}}'::text[], run_at BETWEEN now() AND clock_timestamp() FROM awa_ingest.{call} AS job"
        );
        let returned = client.query(&sql, &[]).await.expect(&sql);
        assert_eq!(returned.len(), 2, "{call}");
        let defaults = "SELECT to_jsonb(job) - '{id,run_at,created_at}'::text[] FROM awa.insert_job_compat($1) AS job";
        for (row, kind) in returned.iter().zip(["a", "b"]) {
            let expected: Value = client.query_one(defaults, &[&kind]).await.expect(defaults).get(0);
            assert_eq!(row.get::<_, Value>(0), expected, "{call}");
            assert!(row.get::<_, bool>(1), "{call}: due at once");
        }
    }
}

/// The state decides where a job waits, whatever its time: without one it is available, also with a time.
#[tokio::test(flavor = "multi_thread")]
async fn the_state_is_what_awas_function_takes_it_for() {
    let client = attached().await.connect().await;
    let (past, soon) = (yesterday(), yesterday() + TimeDelta::days(2));
    let mut sent = Vec::new();
    for state in [None, Some("available"), Some("scheduled"), Some("retryable")] {
        for run_at in [None, Some(past), Some(soon)] {
            sent.push(Row { state: state.map(str::to_owned), run_at, ..plain("q", sent.len() as i64) });
        }
    }
    let returned = compat_batch(&client, &sent, false).await.expect("the batch");
    assert_as_shown(&client, &returned, "states").await;
    for (row, job) in sent.iter().zip(&returned) {
        assert_eq!(job["state"], row.state.as_deref().unwrap_or("available"), "{row:?}");
        let shown: DateTime<Utc> = job["run_at"].as_str().unwrap().parse().unwrap();
        assert!(row.run_at.is_none_or(|time| time == shown), "{row:?}: {shown}");
    }
    assert_eq!(numbers(&client, "awa.ready_entries").await, (0..6).collect::<Vec<_>>());
    assert_eq!(numbers(&client, "awa.deferred_jobs").await, (6..12).collect::<Vec<_>>());
}

/// An ordering key takes a job to its shard; the others of the batch share one for each queue and priority.
#[tokio::test(flavor = "multi_thread")]
async fn ordering_keys_lead_to_shards() {
    let client = attached().await.connect().await;
    Storage::Attached.shard(&client, "q", 4).await;
    let with_ordering_key = |n: i64| Row { ordering_key: (n % 2 == 0).then(|| vec![b'k', n as u8]), ..plain("q", n) };
    let sent: Vec<Row> = (0..40).map(with_ordering_key).collect();
    compat_batch(&client, &sent, false).await.expect("the batch");
    let found = client.query("SELECT (args->>'n')::bigint, enqueue_shard FROM awa.ready_entries", &[]).await.unwrap();
    let mut others = std::collections::BTreeSet::new();
    for (n, shard) in found.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i16>(1))) {
        match &sent[n as usize].ordering_key {
            Some(key) => assert_eq!(shard, shard_for_ordering_key(key, 4), "job {n}"),
            None => drop(others.insert(shard)),
        }
    }
    assert_eq!((found.len(), others.len()), (40, 1), "{others:?}");
    assert_lanes_intact(&client, "awa", "shards").await;
}

/// Each queue that got ready jobs is woken once, when the transaction commits.
#[tokio::test(flavor = "multi_thread")]
async fn workers_are_woken_once_a_queue() {
    let db = attached().await;
    let client = db.connect().await;
    let (listener, mut notifications) = db.listen("awa:ready").await;
    listener.batch_execute("LISTEN \"awa:deferred\"; LISTEN \"awa:skipped\"").await.unwrap();
    compat_batch(&client, &[keyed(1, "elsewhere", 0)], false).await.expect("a holder");
    client.batch_execute("BEGIN").await.unwrap();
    let sent = [plain("ready", 1), deferred(plain("deferred", 2)), keyed(1, "skipped", 3), plain("ready", 4)];
    compat_batch(&client, &sent, true).await.expect("the batch");
    listener.batch_execute("SELECT 1").await.unwrap();
    assert!(notifications.arrived().is_empty(), "before the commit");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(notifications.next().await.channel(), "awa:ready");
    client.batch_execute("NOTIFY \"awa:ready\", 'last'").await.unwrap();
    assert_eq!(notifications.next().await.payload(), "last");
}

/// The memory that a batch may take is bounded, and changes nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_with_little_memory() {
    let db = attached().await;
    let (client, observer) = (db.connect().await, db.connect().await);
    client.batch_execute("SET awa_ingest.batch_memory = '64kB'; SET work_mem = '64kB'").await.unwrap();
    let sql = "SELECT (args->>'n')::bigint, id, queue FROM awa_ingest.insert_jobs_compat_batch(
        kind => '{step}', queue => (SELECT array_agg('q' || n % 3) FROM generate_series(0, 29999) AS n),
        args => (SELECT array_agg(jsonb_build_object('n', n)) FROM generate_series(0, 29999) AS n),
        unique_key => (SELECT array_agg(int4send(n % 20000)) FROM generate_series(0, 29999) AS n), unique_states => '{01000000}',
        skip_conflicts => true)";
    let returned: Vec<(i64, i64, String)> =
        client.query(sql, &[]).await.expect(sql).iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(returned.iter().map(|(n, _, _)| *n).collect::<Vec<_>>(), (0..20000).collect::<Vec<_>>());
    assert!(returned.is_sorted_by(|a, b| a.1 < b.1) && returned.iter().all(|(n, _, queue)| *queue == format!("q{}", n % 3)));
    assert_eq!(rows(&observer, "(SELECT count(*) FROM awa.ready_entries)", &[]).await, [json!({"count": 20000})]);
    assert_lanes_intact(&observer, "awa", "a large batch").await;
    let pid = awa_ingest_tests::backend_pid(&client).await;
    awa_ingest_tests::Session::assert_no_temporary_files(pid, &observer, "after a large batch").await;
}

/// A batch stands and falls with its savepoint and its transaction.
#[tokio::test(flavor = "multi_thread")]
async fn it_belongs_to_the_transaction() {
    let client = attached().await.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    compat_batch(&client, &[keyed(1, "q", 1), keyed(2, "q", 2)], false).await.expect("kept");
    client.batch_execute("SAVEPOINT s").await.unwrap();
    compat_batch(&client, &[keyed(3, "new", 3), keyed(4, "q", 4)], true).await.expect("lost");
    client.batch_execute("ROLLBACK TO s").await.unwrap();
    let again = compat_batch(&client, &[keyed(1, "q", 5), keyed(3, "new", 6)], true).await.expect("kept");
    assert_eq!(again.iter().map(|job| &job["args"]["n"]).collect::<Vec<_>>(), [6], "the rolled back key is free again");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(numbers(&client, "awa.ready_entries").await, [1, 2, 6]);

    client.batch_execute("BEGIN").await.unwrap();
    compat_batch(&client, &[keyed(7, "q", 7)], true).await.expect("lost");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(numbers(&client, "awa.ready_entries").await, [1, 2, 6]);
    assert_lanes_intact(&client, "awa", "transactions").await;
}
