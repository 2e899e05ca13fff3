//! How long lanes are waited for.

use awa_ingest_tests::{Db, Template, backend_pid, wait_until, wait_until_blocked, within};
use tokio_postgres::Client;

use crate::{counted, database, of, run};

/// The histogram, and the sum of the waits in microseconds.
async fn waits(client: &Client, queue: &str) -> (Vec<i64>, i64) {
    let sql = "SELECT lane_lock_waits, (extract(epoch FROM lane_lock_wait_time) * 1000000)::bigint
                 FROM awa_ingest.ingest_stats WHERE queue = $1";
    let row = client.query_one(sql, &[&queue]).await.expect(sql);
    (row.get(0), row.get(1))
}

/// Where a wait of so many microseconds belongs.
fn bucket(micros: i64) -> usize {
    [1_000, 10_000, 100_000, 1_000_000].iter().filter(|bound| micros > **bound).count()
}

/// Has `statement`, which tries again after half of deadlock_timeout, wait for the lane of queue `q` until the server's clock says that it did so for `milliseconds`, and returns the histogram
/// and sum that come of it.
async fn after_waiting(db: &Db, settings: &str, statement: &str, milliseconds: i64) -> (Vec<i64>, i64) {
    let (holder, producer, observer) = (db.connect().await, db.connect().await, db.connect().await);
    run(&producer, settings).await;
    let pid = backend_pid(&producer).await;
    run(&holder, "SELECT awa.enqueue('k', queue => 'q')").await;
    run(&holder, "SELECT awa_ingest.reset_ingest_stats()").await;
    run(&holder, "BEGIN; SELECT awa.enqueue('k', queue => 'q')").await;
    let statement = statement.to_owned();
    let waiting = tokio::spawn(async move { run(&producer, &statement).await });
    wait_until_blocked(&observer, pid).await;
    let now: String = observer.query_one("SELECT clock_timestamp()::text", &[]).await.unwrap().get(0);
    wait_until(&observer, &format!("SELECT clock_timestamp() >= '{now}'::timestamptz + interval '{milliseconds} ms'")).await;
    run(&holder, "ROLLBACK").await;
    within("the producer", waiting).await.expect("the task");
    waits(&observer, "q").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_in_the_bucket_of_its_length() {
    let db = database(Template::Awa).await;
    run(&db.connect().await, "SELECT awa_ingest.attach()").await;
    for statement in ["SELECT awa.enqueue('k', queue => 'q')", "SELECT awa.insert_job_compat('k', 'q')"] {
        for milliseconds in [2, 11, 101, 1001] {
            let (histogram, sum) = after_waiting(&db, "SET deadlock_timeout = '10s'", statement, milliseconds).await;
            let mut expected = vec![0; 5];
            expected[bucket(sum)] = 1;
            assert_eq!(histogram, expected, "{statement}, {sum} us");
            assert!(sum >= milliseconds * 1000, "{statement}: {sum} us is less than {milliseconds} ms");
        }
    }
}

/// Attempts that gave up count to the wait of the one that succeeded, which is one sample, and what they skipped does not count again.
#[tokio::test(flavor = "multi_thread")]
async fn all_attempts_of_a_call_are_one_wait() {
    let db = database(Template::Embedded).await;
    let client = db.connect().await;
    run(&client, "SELECT awa.enqueue('k', queue => 'a')").await;
    let batch = r#"SELECT awa.enqueue_batch('[{"kind": "k", "queue": "a"}, {"kind": "k", "queue": "q", "unique": {}},
        {"kind": "k", "queue": "q", "unique": {}}]', 'skip')"#;
    // It waits for 9 ms, 18, 36 and so on up to 144. What it looks up in between is no wait.
    let (histogram, sum) = after_waiting(&db, "SET deadlock_timeout = '20ms'", batch, 2000).await;
    assert_eq!((histogram, bucket(sum)), (vec![0, 0, 0, 0, 1], 4), "{sum} us");
    assert_eq!(waits(&client, "a").await.0.iter().sum::<i64>(), 1, "the lane that was free each time");
    assert_eq!(counted(&client).await, [of("a", 1, 1, 0), of("q", 1, 1, 1)]);
}

/// A transaction of single calls holds its lane: only the first one asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_held_is_not_asked_for_again() {
    let db = database(Template::Awa).await;
    let client = db.connect().await;
    run(&client, "SELECT awa_ingest.attach(); SELECT awa.insert_job_compat('k', 'q')").await;
    run(&client, "SELECT awa_ingest.reset_ingest_stats()").await;
    run(&client, "SELECT awa.insert_job_compat('k', 'q') FROM generate_series(1, 50)").await;
    assert_eq!(waits(&client, "q").await.0.iter().sum::<i64>(), 1);
    run(&client, "SELECT awa.enqueue('k', queue => 'q', run_at => now() + interval '1 h')").await;
    assert_eq!(waits(&client, "q").await.0.iter().sum::<i64>(), 1, "a deferred job needs no lane");
}
