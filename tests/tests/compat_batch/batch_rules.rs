//! What `insert_jobs_compat_batch` and `insert_many_skip_unique_conflicts` refuse, with SQLSTATE, constraint and ordinal.

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Failure, Storage, assert_nothing_stored, failure, rows};
use serde_json::json;
use tokio_postgres::Client;

use crate::calls::{compat_batch, deferred, keyed, plain, skip_unique};
use crate::{attached, numbers};

/// An argument with its array type and an element that is fit for it.
const ARRAYS: [(&str, &str, &str); 11] = [
    ("queue", "text[]", "'q'"),
    ("args", "jsonb[]", "'{\"a\": 1}'"),
    ("state", "text[]", "'scheduled'"),
    ("priority", "smallint[]", "1"),
    ("max_attempts", "smallint[]", "7"),
    ("run_at", "timestamptz[]", "current_setting('test.yesterday')::timestamptz"),
    ("metadata", "jsonb[]", "'{\"m\": 1}'"),
    ("tags", "jsonb[]", "'[\"t\"]'"),
    ("unique_key", "bytea[]", "'\\x01'"),
    ("unique_states", "text[]", "'00000001'"),
    ("ordering_key", "bytea[]", "'\\x02'"),
];

async fn call(client: &Client, arguments: &str) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
    let call = format!("SELECT to_jsonb(job) FROM awa_ingest.insert_jobs_compat_batch(kind => '{{k,k,k}}', {arguments}) AS job");
    client.query(&call, &[]).await
}

/// An array has one element for all jobs, or one a job; nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn arrays_are_of_length_one_or_full() {
    let client = attached().await.connect().await;
    client.batch_execute("SELECT set_config('test.yesterday', (now() - interval '1 day')::text, false)").await.unwrap();
    for (name, array, element) in ARRAYS {
        let beside = if name == "unique_states" { r", unique_key => ARRAY['\x01'::bytea]" } else { "" };
        let of_length = |n: usize| format!("{name} => ARRAY[{}]::{array}{beside}", vec![element; n].join(", "));
        for length in [0, 2, 4] {
            let refused = failure(call(&client, &of_length(length)).await);
            assert_eq!(refused.sqlstate, "22023", "{name}, {length} elements: {refused:?}");
            assert!([name, "kind"].iter().any(|array| refused.message.contains(&format!("\"{array}\""))), "{refused:?}");
        }
        assert_eq!(
            numbers(&client, "awa.ready_entries").await.len() + numbers(&client, "awa.deferred_jobs").await.len(),
            0,
            "{name}"
        );

        let mut found = Vec::new();
        for length in [1, 3] {
            client.batch_execute("BEGIN").await.unwrap();
            let jobs: Vec<serde_json::Value> =
                call(&client, &of_length(length)).await.expect(name).iter().map(|row| row.get(0)).collect();
            client.batch_execute("ROLLBACK").await.unwrap();
            assert_eq!(jobs.len(), 3, "{name}");
            // An ordering key is not shown.
            let value = jobs[0].get(name).cloned();
            assert!(name == "ordering_key" || value.is_some(), "{name}: {jobs:?}");
            assert!(jobs.iter().all(|job| job.get(name) == value.as_ref()), "{name}: one for all: {jobs:?}");
            found.push(value);
        }
        assert_eq!(found[0], found[1], "{name}: one for all is the same for each");
        let default = call(&client, "queue => NULL").await.expect("defaults")[0].get::<_, serde_json::Value>(0);
        assert!(name == "ordering_key" || default.get(name) != found[0].as_ref(), "{name} was taken: {found:?}");
        client.batch_execute("TRUNCATE awa.ready_entries, awa.ready_segments").await.unwrap();
    }
}

/// A job that breaks a rule, with what it is told.
fn broken() -> Vec<(Row, &'static str, &'static str)> {
    let row = || plain("q", 1);
    let long = Some("k".repeat(201));
    vec![
        (Row { kind: long.clone(), ..row() }, "23514", "kind_length"),
        (Row { kind: Some(String::new()), ..row() }, "23514", "kind_length"),
        (Row { kind: None, ..row() }, "23502", ""),
        (Row { queue: long, ..row() }, "23514", "queue_name_length"),
        (Row { priority: Some(0), ..row() }, "23514", "priority_in_range"),
        (Row { priority: Some(5), ..row() }, "23514", "priority_in_range"),
        (Row { max_attempts: Some(0), ..row() }, "23514", "max_attempts_range"),
        (Row { max_attempts: Some(1001), ..row() }, "23514", "max_attempts_range"),
        (Row { tags: Some(vec!["t".to_owned(); 21]), ..row() }, "23514", "tags_count"),
        (Row { state: Some("running".to_owned()), ..row() }, "22023", ""),
        (Row { state: Some("Available".to_owned()), ..row() }, "22023", ""),
        (Row { metadata: Some(json!([1])), ..row() }, "22023", ""),
    ]
}

#[track_caller]
fn assert_refused(refused: &Failure, sqlstate: &str, constraint: &str, ordinal: u64, row: &Row) {
    let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.ordinal());
    assert_eq!(found, (sqlstate, constraint, Some(ordinal)), "{row:?}: {refused:?}");
}

/// The job is named by its place, and nothing of the batch is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_job_is_named_by_its_place() {
    let client = attached().await.connect().await;
    for (row, sqlstate, constraint) in broken() {
        let batch = [keyed(1, "q", 0), deferred(plain("q", 0)), row.clone(), plain("q", 2)];
        for skip in [false, true] {
            let refused = failure(compat_batch(&client, &batch, skip).await);
            assert_refused(&refused, sqlstate, constraint, 3, &row);
        }
        let refused = failure(skip_unique(&client, &batch).await);
        assert_refused(&refused, sqlstate, constraint, 3, &row);
    }
    assert_nothing_stored(&client, Storage::Attached, "refused").await;
}

/// Keys: what awa's function takes for a job that claims nothing, and what it cannot store.
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_those_of_enqueue_batch() {
    let client = attached().await.connect().await;
    let insert = "SELECT id FROM awa_ingest.insert_many_skip_unique_conflicts($1)";
    for (jobs, sqlstate) in [
        (json!([{"kind": "k"}, {"kind": "k", "colour": "red"}]), "22023"),
        (json!([{"kind": "k"}, {"queue": "q"}]), "23502"),
        (json!([{"kind": "k"}, 7]), "22023"),
        (json!({"kind": "k"}), "22023"),
    ] {
        let refused = failure(client.query(insert, &[&jobs]).await);
        assert_eq!(refused.sqlstate, sqlstate, "{jobs}: {refused:?}");
        assert!(jobs.is_object() || refused.ordinal() == Some(2), "{refused:?}");
    }
    assert_nothing_stored(&client, Storage::Attached, "refused").await;
    // The key is computed as for awa.enqueue_batch.
    let jobs = json!([{"kind": "k", "unique": true}, {"kind": "k", "unique": {"by_queue": true}}, {"kind": "k", "unique": true}]);
    assert_eq!(client.query(insert, &[&jobs]).await.expect(insert).len(), 2);
    let same = client.query("SELECT job_id FROM awa.enqueue_batch($1::jsonb, 'skip')", &[&jobs]).await.unwrap();
    assert!(same.iter().all(|row| row.get::<_, Option<i64>>(0).is_none()), "awa.enqueue_batch finds the keys taken");
}

/// Without skipping, a key that is taken or given twice raises 23505 before anything is written.
#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_errors_unless_they_are_skipped() {
    let client = attached().await.connect().await;
    let twice = [plain("q", 0), keyed(7, "q", 1), deferred(plain("q", 2)), keyed(8, "new", 3), keyed(7, "q", 4)];
    let refused = failure(compat_batch(&client, &twice, false).await);
    assert_refused(&refused, "23505", "idx_awa_jobs_unique", 5, &twice[4]);
    assert_nothing_stored(&client, Storage::Attached, "a key twice").await;

    let holder = compat_batch(&client, &[keyed(7, "q", 0)], false).await.expect("the holder");
    let refused = failure(compat_batch(&client, &[plain("new", 1), deferred(keyed(7, "q", 2))], false).await);
    assert_refused(&refused, "23505", "idx_awa_jobs_unique", 2, &twice[1]);
    assert!(refused.detail.contains(&format!("id {}", holder[0]["id"])), "{refused:?}");
    // The default is to raise.
    let by_default = r"SELECT id FROM awa_ingest.insert_jobs_compat_batch(kind => '{k}', unique_key => ARRAY['\x00000007'::bytea],
        unique_states => '{01000000}')";
    let refused = failure(client.query(by_default, &[]).await);
    assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"), "{refused:?}");
    assert_eq!(numbers(&client, "awa.ready_entries").await, [0]);
    assert_eq!(rows(&client, "awa.job_unique_claims", &[]).await.len(), 1);
    assert_eq!(rows(&client, "awa.queue_lanes", &[]).await.len(), 1, "no lane was made");
}
