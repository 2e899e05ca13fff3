//! While awa's canonical engine is active, jobs go to its tables, and are what awa's own insert writes there.

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Db, Template, Worker, assert_same_rows, rows};
use awa_model::{InsertOpts, InsertParams, UniqueOpts};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::calls::{Way, compat_batch, deferred, keyed, plain};
use crate::last_jobs::canonical_with_extension;
use crate::{attach, attached, emptied, numbers, old};

/// A database on the canonical engine, attached.
pub async fn canonical() -> Db {
    attach(canonical_with_extension().await).await
}

/// Every column of every job: ids as their order, and times only where they were given.
const JOBS: &str = "(SELECT to_jsonb(job) - '{id,run_at,created_at}'::text[] AS job, job.tableoid::regclass::text AS part,
        row_number() OVER (ORDER BY id) AS place, job.run_at >= job.created_at AS since,
        CASE WHEN run_at NOT BETWEEN created_at - interval '5 min' AND created_at + interval '5 min' THEN run_at END AS run_at
        FROM (SELECT tableoid, * FROM awa.jobs_hot UNION ALL SELECT tableoid, * FROM awa.scheduled_jobs) AS job)";

/// Keys with the place of the job that holds them.
const CLAIMS: &str = "(SELECT encode(unique_key, 'hex') AS key, place FROM awa.job_unique_claims
        LEFT JOIN (SELECT id AS job_id, row_number() OVER (ORDER BY id) AS place FROM awa.jobs) AS jobs USING (job_id))";

/// What awa's triggers note, once for each.
const MARKS: &str = "(SELECT DISTINCT 'queue' AS what, queue AS name FROM awa.admin_dirty_queue_marks
        UNION SELECT 'kind', kind FROM awa.admin_dirty_kind_marks)";

/// Which tables have rows, so that nothing goes where nobody looks.
const TABLES: &str = "(SELECT oid::regclass AS name FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind = 'r'
        AND (xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM %s', oid::regclass), true, true, '')))[1]::text <> '0')";

async fn assert_equal(awas: &Client, ours: &Client, what: &str) {
    for query in [JOBS, CLAIMS, MARKS, TABLES] {
        assert_same_rows(what, &rows(awas, query, &[]).await, &rows(ours, query, &[]).await);
    }
}

/// Jobs with every option, told apart by `args.n`; no key twice.
fn sent() -> Vec<InsertParams> {
    (0..40)
        .map(|n| {
            let opts = InsertOpts {
                queue: ["beta", "alpha", "Ünïcode \"q\" 🚀"][n % 3].to_owned(),
                priority: [3, 1, 4, 2][n % 4],
                max_attempts: [25, 1, 1000][n % 3],
                run_at: (n % 5 == 0).then(|| "2041-05-06T07:08:09.000001Z".parse().expect("a time")),
                metadata: [json!({}), json!({"k": {"é": [1.5, null]}})][n % 2].clone(),
                tags: [vec![], vec!["a, \"b\"".to_owned(), "\\".to_owned(), String::new(), "NULL".to_owned()]][n / 2 % 2].clone(),
                unique: (n % 4 != 3)
                    .then(|| UniqueOpts { states: [0b0001_1111, 0b0000_0010, 0b0000_0001][n % 4], ..Default::default() }),
                ordering_key: (n % 7 == 0).then(|| vec![n as u8]),
                ..Default::default()
            };
            InsertParams { kind: ["step", "другой"][n % 2].to_owned(), args: json!({"n": n}), opts }
        })
        .collect()
}

/// What awa's client writes, in a database that knows no extension.
async fn awas_own() -> Client {
    let db = Db::of(Template::AwaCanonical).await;
    awa_model::insert_many(&db.pool().await, &sent()).await.expect("awa::insert_many");
    db.connect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_equal_awas() {
    let awas = awas_own().await;
    let prepared: Vec<Row> = sent().iter().map(Row::prepared).collect();
    let db = canonical().await;
    for way in Way::RAISING {
        let ours = emptied(&db).await;
        way.enqueue(&ours, &prepared).await.unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        assert_equal(&awas, &ours, &format!("{way:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_skip_equal_awas() {
    let awas = awas_own().await;
    let prepared: Vec<Row> = sent().iter().map(Row::prepared).collect();
    let db = canonical().await;
    for way in Way::SKIPPING.into_iter().chain([Way::Returning]) {
        let ours = emptied(&db).await;
        let outcomes = way.skip(&ours, &prepared).await.unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        assert!(outcomes.iter().flatten().count() == prepared.len() && outcomes.iter().flatten().is_sorted_by(|a, b| a < b));
        assert_equal(&awas, &ours, &format!("{way:?}, skipping")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single_jobs_and_clients_equal_awas() {
    let awas = awas_own().await;
    let ours = canonical().await.connect().await;
    for job in sent() {
        awa_ingest_tests::jobs::enqueue(&ours, &job).await;
    }
    assert_equal(&awas, &ours, "awa.enqueue").await;

    // The replaced function, as awa's clients call it.
    let db = canonical().await;
    awa_model::insert_many(&db.pool().await, &sent()).await.expect("awa::insert_many");
    assert_equal(&awas, &db.connect().await, "insert_job_compat").await;
}

/// The rows that come back are those that are stored, and what awa's own function says of the same job.
#[tokio::test(flavor = "multi_thread")]
async fn rows_come_back_as_stored() {
    let (awas, ours) = (Db::of(Template::AwaCanonical).await.connect().await, canonical().await.connect().await);
    let sent =
        [plain("q", 0), keyed(1, "q", 1), deferred(keyed(2, "p", 2)), Row { metadata: Some(json!({"m": 1})), ..plain("p", 3) }];
    let returned = compat_batch(&ours, &sent, false).await.expect("the batch");
    crate::batch::assert_as_shown(&ours, &returned, "canonical").await;
    for (row, found) in sent.iter().zip(&returned) {
        let (mut expected, mut found) = (old::insert(&awas, "awa", row).await.expect("awa's"), found.clone());
        for job in [&mut expected, &mut found] {
            let columns = job.as_object_mut().expect("a row");
            columns.retain(|name, _| !["id", "created_at"].contains(&name.as_str()) && (name != "run_at" || row.run_at.is_some()));
        }
        assert_eq!(found, expected);
    }
}

/// A job is made when its transaction began, as awa has it, and due at some time since: awa takes the time of its function's call, with
/// which its own trigger finds the job not due yet, and wakes nobody.
#[tokio::test(flavor = "multi_thread")]
async fn times_are_of_the_transaction() {
    let (awas, ours) = (Db::of(Template::AwaCanonical).await.connect().await, canonical().await.connect().await);
    let times = "(SELECT DISTINCT created_at = now() AS began, run_at BETWEEN now() AND clock_timestamp() AS since FROM awa.jobs)";
    for client in [&awas, &ours] {
        client.batch_execute("BEGIN").await.unwrap();
    }
    old::insert(&awas, "awa", &plain("q", 0)).await.expect("awa's");
    let expected = rows(&awas, times, &[]).await;
    assert_eq!(expected, [json!({"began": true, "since": true})]);
    for way in Way::RAISING {
        ours.batch_execute("SAVEPOINT s").await.unwrap();
        let later = Row { state: Some("retryable".to_owned()), ..plain("q", 1) };
        // enqueue_columns has no states.
        way.enqueue(&ours, &[plain("q", 0), if way == Way::Columns { plain("q", 1) } else { later }]).await.expect("jobs");
        assert_eq!(rows(&ours, times, &[]).await, expected, "{way:?}");
        ours.batch_execute("ROLLBACK TO s").await.unwrap();
    }
}

/// The rules and their codes are the same; the extension's checks come first.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_the_same() {
    let client = canonical().await.connect().await;
    for (row, sqlstate, constraint) in [
        (Row { kind: Some("k".repeat(201)), ..plain("q", 1) }, "23514", "kind_length"),
        (Row { priority: Some(9), ..plain("q", 1) }, "23514", "priority_in_range"),
        (Row { kind: None, ..plain("q", 1) }, "23502", ""),
    ] {
        for way in Way::RAISING {
            let refused = awa_ingest_tests::failure(way.enqueue(&client, &[plain("q", 0), row.clone()]).await);
            let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.ordinal());
            assert_eq!(found, (sqlstate, constraint, Some(2)), "{way:?}: {refused:?}");
        }
    }
    assert!(rows(&client, "awa.jobs", &[]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_batches_spill() {
    let db = canonical().await;
    for way in [Way::Batch, Way::Copy, Way::CompatBatch] {
        let client = emptied(&db).await;
        client.batch_execute("SET awa_ingest.batch_memory = '64kB'; SET work_mem = '64kB'").await.unwrap();
        let sent: Vec<Row> = (0..5000)
            .map(|n| {
                let row = keyed(n % 4000, ["a", "b"][n as usize % 2], i64::from(n));
                if n % 10 == 0 { deferred(row) } else { row }
            })
            .collect();
        let outcomes = way.skip(&client, &sent).await.expect("the batch");
        assert_eq!(
            outcomes.iter().map(Option::is_some).collect::<Vec<_>>(),
            (0..5000).map(|n| n < 4000).collect::<Vec<_>>(),
            "{way:?}"
        );
        assert_eq!(numbers(&client, "awa.jobs_hot").await, (0..4000).filter(|n| n % 10 != 0).collect::<Vec<_>>(), "{way:?}");
        assert_eq!(numbers(&client, "awa.scheduled_jobs").await, (0..4000).filter(|n| n % 10 == 0).collect::<Vec<_>>(), "{way:?}");
    }
}

/// `status()` says where jobs go.
#[tokio::test(flavor = "multi_thread")]
async fn status_says_canonical() {
    let status = "(SELECT storage, engine, storage_schema, ready, problem, insert_job_compat FROM awa_ingest.status())";
    let client = canonical().await.connect().await;
    let expected = json!({"storage": "awa", "engine": "canonical", "storage_schema": "awa", "ready": true, "problem": null,
        "insert_job_compat": "replaced"});
    assert_eq!(rows(&client, status, &[]).await, [expected]);
    let client = attached().await.connect().await;
    assert_eq!(rows(&client, status, &[]).await[0]["engine"], "queue_storage");
}

/// A real worker that stays on the canonical engine, because there are jobs, works what came in each way and sees what was sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_works_them() {
    let db = canonical().await;
    let client = db.connect().await;
    let ways: Vec<Way> = Way::SKIPPING.into_iter().chain([Way::Returning]).collect();
    for (key, way) in (0..).zip(&ways) {
        let soon = chrono::Utc::now() + chrono::TimeDelta::milliseconds(200);
        let base = i64::from(key) * 10;
        let later = Row { state: Some("scheduled".to_owned()), run_at: Some(soon), ..plain("q", base + 2) };
        let tagged = Row { tags: Some(vec!["t".to_owned()]), metadata: Some(json!({"way": base})), ..keyed(key, "p", base + 3) };
        way.skip(&client, &[plain("q", base), keyed(key + 100, "q", base + 1), later, tagged]).await.expect("jobs");
    }
    let worker = Worker::builder().queue("q").queue("p").kind("step").max_workers(4).start(&db).await;
    worker.wait_for(4 * ways.len()).await;
    let mut seen = worker.stop().await;
    assert_eq!(rows(&client, "(SELECT awa.active_storage_engine() AS engine)", &[]).await, [json!({"engine": "canonical"})]);
    seen.sort_by_key(|job| job.args["n"].as_i64());
    let expected: Vec<Value> = (0..ways.len()).flat_map(|way| (0..4).map(move |n| json!({"n": 10 * way + n}))).collect();
    assert_eq!(seen.iter().map(|job| job.args.clone()).collect::<Vec<_>>(), expected, "each is worked once");
    for job in seen.iter().filter(|job| job.queue == "p") {
        assert_eq!((&job.tags, &job.metadata), (&vec!["t".to_owned()], &json!({"way": job.args["n"].as_i64().unwrap() - 3})));
    }
}
