//! `last_ingest_jobs()`: the jobs of the session's last COPY or INSERT as awa shows them, in input order.

use awa_ingest_tests::copy::{Format, Row, copy_csv, copy_rows, last_ingest};
use awa_ingest_tests::{Db, Template, Worker, failure, wait_until};
use serde_json::Value;
use tokio_postgres::Client;

use crate::batch::jobs_of_every_sort;
use crate::calls::{deferred, ids, keyed, last_jobs, plain, shown};
use crate::{attach, attached};

const SKIPPING: &str = "awa.ingest_skip_conflicts";

/// What it returns, which must be what `awa.last_ingest()` names and `awa.jobs` shows.
async fn told(client: &Client, when: &str) -> Vec<Value> {
    let jobs = last_jobs(client).await.unwrap_or_else(|error| panic!("{when}: {error:?}"));
    let named: Vec<i64> = last_ingest(client).await.iter().filter_map(|row| row.job_id).collect();
    assert_eq!(ids(&jobs), named, "{when}");
    assert_eq!(jobs, shown(client, &named).await, "{when}");
    assert!(jobs.iter().all(|job| job.as_object().expect("a row").len() == 27), "{when}");
    jobs
}

fn n(jobs: &[Value]) -> Vec<i64> {
    jobs.iter().map(|job| job["args"]["n"].as_i64().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_come_in_input_order_without_those_skipped() {
    let client = attached().await.connect().await;
    for format in Format::ALL {
        let base = 1000 * format as i64;
        let key = |n: u32| n + 100 * format as u32;
        copy_rows(&client, "awa.ingest", format, &[keyed(key(1), "held", base)]).await.expect("a holder");
        assert_eq!(n(&told(&client, "a holder").await), [base]);
        let sent = [
            keyed(key(9), "b", base + 1),
            keyed(key(1), "b", base + 2),
            deferred(keyed(key(5), "a", base + 3)),
            plain("a", base + 4),
            keyed(key(9), "a", base + 5),
            deferred(plain("b", base + 6)),
            Row { priority: Some(1), ..keyed(key(2), "a", base + 7) },
        ];
        assert_eq!(copy_rows(&client, SKIPPING, format, &sent).await.expect("COPY"), 7);
        let jobs = told(&client, "a COPY").await;
        assert_eq!(n(&jobs), [1, 3, 4, 6, 7].map(|n| base + n), "{format:?}");
        assert_eq!(
            jobs.iter().map(|job| job["state"].as_str().unwrap()).collect::<Vec<_>>(),
            ["available", "scheduled", "available", "scheduled", "available"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_every_sort_are_as_awa_shows_them() {
    let client = attached().await.connect().await;
    copy_rows(&client, SKIPPING, Format::Binary, &jobs_of_every_sort().map_states()).await.expect("COPY");
    assert_eq!(told(&client, "every sort").await.len(), 90);
}

/// The foreign tables take no job that is available at a time of its own unless its state says so, as here.
trait MapStates {
    fn map_states(self) -> Vec<Row>;
}

impl MapStates for Vec<Row> {
    fn map_states(self) -> Vec<Row> {
        self.into_iter().map(|row| Row { state: row.state.or(Some("available".to_owned())), ..row }).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_are_told_as_well() {
    let client = attached().await.connect().await;
    let source = "SELECT 'k', 'q', jsonb_build_object('n', n), int4send(n % 4), '01000000' FROM generate_series(0, 9) AS n";
    let columns = "kind, queue, args, unique_key, unique_states";
    client.batch_execute(&format!("INSERT INTO {SKIPPING} ({columns}) {source}")).await.unwrap();
    assert_eq!(n(&told(&client, "INSERT").await), [0, 1, 2, 3]);
    client.batch_execute("INSERT INTO awa.ingest (kind, args) VALUES ('k', '{\"n\": 7}'), ('k', '{\"n\": 5}')").await.unwrap();
    assert_eq!(n(&told(&client, "INSERT without conflicts").await), [7, 5]);
    let returning = format!(
        "INSERT INTO {SKIPPING} ({columns}) SELECT 'k', 'q', jsonb_build_object('n', n + 100), int4send(n), '01000000'
        FROM generate_series(2, 6) AS n RETURNING job_id"
    );
    assert_eq!(client.query(&returning, &[]).await.expect("RETURNING").len(), 3);
    assert_eq!(n(&told(&client, "RETURNING").await), [104, 105, 106]);
    // All skipped: there was a statement, but it enqueued nothing.
    client.batch_execute(&format!("INSERT INTO {SKIPPING} ({columns}) {source}")).await.unwrap();
    assert!(told(&client, "all skipped").await.is_empty());
    // Functions do not count.
    client.batch_execute("SELECT awa.enqueue('k')").await.unwrap();
    assert!(told(&client, "a function").await.is_empty());
}

/// Before the first COPY there is nothing, and nothing of another session's.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_nothing_before_the_first_copy() {
    let db = attached().await;
    let (client, other) = (db.connect().await, db.connect().await);
    assert!(told(&client, "nothing yet").await.is_empty());
    copy_csv(&other, SKIPPING, "kind", "k\n").await.expect("COPY");
    assert_eq!(told(&other, "its own").await.len(), 1);
    assert!(told(&client, "another session's").await.is_empty());
}

/// What was rolled back is not told; within the transaction it is.
#[tokio::test(flavor = "multi_thread")]
async fn savepoints_and_transactions_count() {
    let client = attached().await.connect().await;
    let copy = |kind: &'static str| {
        copy_csv(&client, SKIPPING, "kind, args", Box::leak(format!("{kind},\"{{\"\"n\"\": 1}}\"\n").into_boxed_str()))
    };
    let kinds = |jobs: Vec<Value>| jobs.iter().map(|job| job["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    client.batch_execute("BEGIN").await.unwrap();
    copy("first").await.expect("COPY");
    assert_eq!(kinds(told(&client, "in the transaction").await), ["first"]);
    client.batch_execute("SAVEPOINT s").await.unwrap();
    copy("lost").await.expect("COPY");
    assert_eq!(kinds(told(&client, "in the savepoint").await), ["lost"]);
    client.batch_execute("ROLLBACK TO s").await.unwrap();
    assert!(last_jobs(&client).await.expect("after the rollback").is_empty());
    client.batch_execute("SAVEPOINT kept").await.unwrap();
    copy("second").await.expect("COPY");
    client.batch_execute("RELEASE kept").await.unwrap();
    assert_eq!(kinds(told(&client, "released").await), ["second"]);
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(kinds(told(&client, "committed").await), ["second"]);

    client.batch_execute("BEGIN").await.unwrap();
    copy("lost").await.expect("COPY");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert!(last_jobs(&client).await.expect("after the transaction").is_empty());
}

/// Jobs that a worker has done since are shown as they were enqueued, in their place; those whose rows are gone are not.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_were_worked_keep_their_place() {
    let db = attached().await;
    let (client, observer) = (db.connect().await, db.connect().await);
    let sent: Vec<Row> = (0..8)
        .map(|n| {
            let row = plain(["worked", "left"][n as usize / 2 % 2], n);
            if n % 4 == 3 { deferred(row) } else { row }
        })
        .collect();
    copy_rows(&client, SKIPPING, Format::Csv, &sent).await.expect("COPY");
    let before = told(&client, "before the worker").await;
    assert_eq!(n(&before), (0..8).collect::<Vec<_>>());
    let worker = Worker::builder().queue("worked").kind("step").start(&db).await;
    worker.wait_for(4).await;
    wait_until(&observer, "SELECT count(*) = 4 FROM awa.jobs WHERE state = 'completed'").await;
    assert_eq!(last_jobs(&client).await.expect("beside a worker"), before);
    worker.stop().await;
    assert_eq!(last_jobs(&client).await.expect("after it"), before);

    client.batch_execute("DELETE FROM awa.deferred_jobs WHERE args->>'n' = '3'").await.unwrap();
    client.batch_execute("DELETE FROM awa.ready_entries WHERE args->>'n' = '4'").await.unwrap();
    assert_eq!(n(&last_jobs(&client).await.expect("the rest")), [0, 1, 2, 5, 6, 7]);
}

/// It reads the storage as the caller.
#[tokio::test(flavor = "multi_thread")]
async fn reading_needs_the_right_to_read() {
    let db = attached().await;
    let role = db.role("producer").await;
    let superuser = db.connect().await;
    superuser.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.unwrap();
    superuser.batch_execute(&format!("GRANT EXECUTE ON FUNCTION awa_ingest.last_ingest_jobs() TO {role}")).await.unwrap();
    let client = db.connect_as(&role).await;
    copy_csv(&client, SKIPPING, "kind, queue", "a,q\nb,q\n").await.expect("COPY");
    let refused = failure(last_jobs(&client).await);
    assert_eq!(refused.sqlstate, "42501", "{refused:?}");

    superuser
        .batch_execute(&format!(
            "GRANT SELECT ON ALL TABLES IN SCHEMA awa TO {role};
        GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA awa TO {role}"
        ))
        .await
        .unwrap();
    assert_eq!(last_jobs(&client).await.expect("with the right to read").len(), 2);
    superuser.batch_execute(&format!("REVOKE EXECUTE ON FUNCTION awa_ingest.last_ingest_jobs() FROM {role}")).await.unwrap();
    assert_eq!(failure(last_jobs(&client).await).sqlstate, "42501");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_canonical_engine_too() {
    let db = attach(canonical_with_extension().await).await;
    let client = db.connect().await;
    assert!(told(&client, "nothing yet").await.is_empty());
    let sent = [keyed(1, "q", 0), deferred(plain("q", 1)), keyed(1, "q", 2), plain("p", 3)];
    copy_rows(&client, SKIPPING, Format::Csv, &sent).await.expect("COPY");
    assert_eq!(n(&told(&client, "canonical").await), [0, 1, 3]);
    let sql = "UPDATE awa.jobs_hot SET state = 'completed', finalized_at = now() WHERE args->>'n' = '0'";
    client.batch_execute(sql).await.expect(sql);
    assert_eq!(told(&client, "worked").await[0]["state"], "completed");
}

/// A database that awa migrated but did not finalise, with the extension.
pub async fn canonical_with_extension() -> Db {
    let db = Db::of(Template::AwaCanonical).await;
    db.connect().await.batch_execute("CREATE EXTENSION awa_ingest").await.expect("CREATE EXTENSION");
    db
}
