//! Skipping, in every way that there is: which jobs are left out, and that the rest is what it would be without them.

use awa_ingest_tests::{assert_lanes_intact, jobs, rows};
use awa_model::InsertParams;
use serde_json::json;
use tokio_postgres::Client;

use crate::calls::{Way, compat_batch, deferred, keyed, plain, skip_unique, with_key};
use crate::{attached, emptied, numbers};

/// All ways to skip, `RETURNING` among them.
fn ways() -> impl Iterator<Item = Way> {
    Way::SKIPPING.into_iter().chain([Way::Returning])
}

/// Whether each job of `rows` was enqueued.
async fn taken(client: &Client, way: Way, rows: &[awa_ingest_tests::copy::Row]) -> Vec<bool> {
    let outcomes = way.skip(client, rows).await.unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
    outcomes.iter().map(Option::is_some).collect()
}

async fn claims(client: &Client) -> Vec<serde_json::Value> {
    rows(client, "(SELECT encode(unique_key, 'hex') AS key, job_id FROM awa.job_unique_claims)", &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_twice_in_the_batch_keeps_the_first_job() {
    let db = attached().await;
    for way in ways() {
        let client = emptied(&db).await;
        let batch =
            [keyed(2, "q", 0), plain("q", 1), keyed(1, "p", 2), keyed(2, "p", 3), deferred(keyed(1, "q", 4)), keyed(2, "q", 5)];
        assert_eq!(taken(&client, way, &batch).await, [true, true, true, false, false, false], "{way:?}");
        assert_eq!(numbers(&client, "awa.ready_entries").await, [0, 1, 2], "{way:?}");
        assert_eq!(claims(&client).await.len(), 2, "{way:?}");
        assert_lanes_intact(&client, "awa", "a key twice").await;
    }
}

/// A batch of which nothing is new is no error and takes no lane.
#[tokio::test(flavor = "multi_thread")]
async fn all_may_be_duplicates() {
    let db = attached().await;
    for way in ways() {
        let client = emptied(&db).await;
        let batch: Vec<_> = (0..50).map(|n| keyed(n as u32 % 5, "q", n)).collect();
        let outcomes = way.skip(&client, &batch).await.expect("the first");
        assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), (0..50).map(|n| n < 5).collect::<Vec<_>>(), "{way:?}");
        let before = claims(&client).await;
        let elsewhere: Vec<_> = (0..50).map(|n| keyed(n as u32 % 5, "another lane", n)).collect();
        assert_eq!(taken(&client, way, &elsewhere).await, [false; 50], "{way:?}");
        assert_eq!(numbers(&client, "awa.ready_entries").await, [0, 1, 2, 3, 4], "{way:?}");
        assert_eq!(claims(&client).await, before);
        assert_eq!(rows(&client, "awa.queue_lanes", &[]).await.len(), 1, "{way:?}");
    }
}

/// A key is held by a job in a state that its own states name, and asked for by one in such a state; which state that is does not matter.
#[tokio::test(flavor = "multi_thread")]
async fn states_say_who_claims() {
    let db = attached().await;
    for way in ways() {
        let client = emptied(&db).await;
        let batch = [
            deferred(with_key(plain("q", 0), 1, "10000000")),
            with_key(plain("q", 1), 1, "01000000"),
            with_key(plain("q", 2), 2, "01000000"),
            deferred(with_key(plain("q", 3), 2, "10000000")),
            // These ask for nothing: the bit of their state is not set.
            with_key(plain("q", 4), 1, "10111111"),
            deferred(with_key(plain("q", 5), 2, "01111111")),
            with_key(plain("q", 6), 3, "00000000"),
            with_key(plain("q", 7), 3, "10111111"),
            awa_ingest_tests::copy::Row { unique_states: None, ..keyed(4, "q", 8) },
            // And so these find nothing taken.
            with_key(plain("q", 9), 3, "01000000"),
            deferred(with_key(plain("q", 10), 4, "10000000")),
        ];
        let expected = [true, false, true, false, true, true, true, true, true, true, true];
        assert_eq!(taken(&client, way, &batch).await, expected, "{way:?}");
        // Once they are there it is the same.
        let expected = [false, false, false, false, true, true, true, true, true, false, false];
        assert_eq!(taken(&client, way, &batch).await, expected, "{way:?}, again");
        assert_eq!(claims(&client).await.len(), 4, "{way:?}");
    }
}

/// Survivors keep the input's order in every lane, and close up.
#[tokio::test(flavor = "multi_thread")]
async fn survivors_keep_their_order_and_close_up() {
    let db = attached().await;
    for way in ways() {
        let client = emptied(&db).await;
        way.enqueue_or_skip(&client, &(0..30).map(|n| keyed(n * 3, "held", i64::from(n))).collect::<Vec<_>>()).await;
        client.batch_execute("TRUNCATE awa.ready_entries, awa.ready_segments").await.unwrap();
        let batch: Vec<_> = (0..90_u32)
            .map(|n| {
                let mut row = keyed(89 - n, ["b", "a"][n as usize % 2], i64::from(n));
                row.priority = Some([2, 1, 4][n as usize % 3]);
                if n % 5 == 0 { deferred(row) } else { row }
            })
            .collect();
        let outcomes = way.skip(&client, &batch).await.expect("the batch");
        let enqueued: Vec<i64> = (0..90).filter(|n| outcomes[*n as usize].is_some()).collect();
        assert_eq!(enqueued, (0..90).filter(|n| (89 - n) % 3 != 0).collect::<Vec<_>>(), "{way:?}");
        assert!(outcomes.iter().flatten().is_sorted_by(|a, b| a < b), "{way:?}: ids ascend");
        assert_eq!(numbers(&client, "awa.deferred_jobs").await, deferred_of(&enqueued), "{way:?}");
        // Way::Returning takes its keys job by job, and closes up as well.
        let gaps = "(SELECT queue, priority, n FROM (SELECT queue, priority, lane_seq, (args->>'n')::bigint AS n,
                row_number() OVER lane AS place, lag((args->>'n')::bigint) OVER lane AS before
                FROM awa.ready_entries WINDOW lane AS (PARTITION BY queue, priority ORDER BY lane_seq)) AS ready
            WHERE place <> lane_seq OR n < before)";
        assert_eq!(rows(&client, gaps, &[]).await, [] as [serde_json::Value; 0], "{way:?}");
        assert_lanes_intact(&client, "awa", "survivors").await;
    }
}

fn deferred_of(enqueued: &[i64]) -> Vec<i64> {
    enqueued.iter().copied().filter(|n| n % 5 == 0).collect()
}

impl Way {
    /// For a batch without conflicts, whichever policies the way knows.
    async fn enqueue_or_skip(self, client: &Client, rows: &[awa_ingest_tests::copy::Row]) {
        let outcomes = self.skip(client, rows).await.unwrap_or_else(|error| panic!("{self:?}: {error:?}"));
        assert!(outcomes.iter().all(Option::is_some), "{self:?}");
    }
}

/// What is skipped leaves the caller's transaction as usable as before.
#[tokio::test(flavor = "multi_thread")]
async fn the_transaction_goes_on() {
    let db = attached().await;
    for way in ways() {
        let client = emptied(&db).await;
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS orders (n bigint); TRUNCATE orders; BEGIN; INSERT INTO orders VALUES (1); SAVEPOINT s",
            )
            .await
            .unwrap();
        assert_eq!(taken(&client, way, &[keyed(1, "q", 0), keyed(1, "q", 1)]).await, [true, false], "{way:?}");
        client.batch_execute("INSERT INTO orders VALUES (2); RELEASE s").await.unwrap();
        assert_eq!(taken(&client, way, &[keyed(1, "q", 2), keyed(2, "q", 3)]).await, [false, true], "{way:?}");
        client.batch_execute("INSERT INTO orders VALUES (3); COMMIT").await.unwrap();
        assert_eq!(rows(&client, "orders", &[]).await.len(), 3, "{way:?}");
        assert_eq!(numbers(&client, "awa.ready_entries").await, [0, 3], "{way:?}");
    }
}

/// The two functions for awa's clients leave out what is skipped, and find what other producers hold.
#[tokio::test(flavor = "multi_thread")]
async fn only_enqueued_jobs_come_back() {
    let client = attached().await.connect().await;
    let unique = |n: i64| InsertParams {
        opts: awa_model::InsertOpts { unique: Some(Default::default()), ..Default::default() },
        ..jobs::job("once", json!({"n": n}))
    };
    jobs::enqueue_batch(&client, &[unique(1), unique(3)]).await;
    let prepared: Vec<_> = (0..5).map(|n| awa_ingest_tests::copy::Row::prepared(&unique(n))).collect();
    let numbers = |jobs: &[serde_json::Value]| jobs.iter().map(|job| job["args"]["n"].as_i64().unwrap()).collect::<Vec<_>>();
    let returned = compat_batch(&client, &prepared, true).await.expect("the batch");
    assert_eq!(numbers(&returned), [0, 2, 4]);
    let described: Vec<_> = (0..7).rev().map(|n| awa_ingest_tests::copy::Row::described(&unique(n))).collect();
    let returned = skip_unique(&client, &described).await.expect("objects");
    assert_eq!(numbers(&returned), [6, 5]);
    assert!(compat_batch(&client, &prepared, true).await.expect("again").is_empty());
    assert!(skip_unique(&client, &described).await.expect("again").is_empty());
}
