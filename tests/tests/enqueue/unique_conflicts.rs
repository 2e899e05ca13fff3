//! Keys that are taken, in the storage or earlier in the request, under both policies.

use awa_ingest_tests::{Storage, failure, rows};
use tokio_postgres::Client;

const STORED: &str = r#"[{"kind": "stored", "unique": true}]"#;
/// The second and the fourth job lose: to a stored job, and to the third.
const BATCH: &str = r#"[{"kind": "plain"}, {"kind": "stored", "unique": true}, {"kind": "twice", "unique": true},
    {"kind": "twice", "unique": true, "priority": 1}, {"kind": "later", "unique": true, "run_at": "2030-01-01"}]"#;
const REPEATED: &str = r#"[{"kind": "plain"}, {"kind": "twice", "unique": true}, {"kind": "twice", "unique": true}]"#;

async fn enqueue(
    client: &Client,
    jobs: &str,
    on_conflict: &str,
) -> Result<Vec<(i64, Option<i64>, Option<i64>)>, tokio_postgres::Error> {
    let sql = format!("SELECT * FROM awa.enqueue_batch('{jobs}', '{on_conflict}')");
    let rows = client.query(&sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
}

/// Ready jobs, segments, deferred jobs and claims.
async fn counts(client: &Client, storage: Storage) -> [usize; 4] {
    let mut counts = [0; 4];
    for (count, table) in counts.iter_mut().zip(["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims"]) {
        *count = rows(client, &storage.table(table), &[]).await.len();
    }
    counts
}

#[tokio::test]
async fn an_error_leaves_no_row_and_no_claim() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let stored = enqueue(&client, STORED, "error").await.unwrap()[0].1.unwrap();
        let before = counts(&client, storage).await;
        for (jobs, ordinal, holder) in [(BATCH, 2, Some(stored)), (REPEATED, 3, None)] {
            let refused = failure(enqueue(&client, jobs, "error").await);
            assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"));
            assert_eq!(refused.ordinal(), Some(ordinal), "{refused:?}");
            let whose = match holder {
                Some(holder) => format!("is held by the job with id {holder}."),
                None => "is that of job 2 of the same request, too.".to_owned(),
            };
            assert!(refused.detail.ends_with(&whose), "{refused:?}");
            assert_eq!(counts(&client, storage).await, before, "{jobs}");
        }
    }
}

#[tokio::test]
async fn skipping_keeps_the_first_and_the_transaction() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let stored = enqueue(&client, STORED, "error").await.unwrap()[0].1;
        client.batch_execute("BEGIN").await.unwrap();
        let result = enqueue(&client, BATCH, "skip").await.unwrap();
        let ids: Vec<_> = result.iter().map(|row| row.1).collect();
        assert!(ids[0].is_some() && ids[2].is_some() && ids[4].is_some() && ids[1].is_none() && ids[3].is_none());
        assert_eq!(result.iter().map(|row| row.2).collect::<Vec<_>>(), [None, stored, None, ids[2], None]);
        enqueue(&client, r#"[{"kind": "after"}]"#, "error").await.expect("a usable transaction");
        client.batch_execute("COMMIT").await.unwrap();
        // stored, plain, twice and after are ready, in one lane without a gap; a segment for each call.
        assert_eq!(counts(&client, storage).await, [4, 3, 1, 3]);
        let positions = rows(&client, &format!("(SELECT lane_seq FROM {} ORDER BY 1)", storage.table("ready_entries")), &[]).await;
        let first = positions[0]["lane_seq"].as_i64().unwrap();
        assert!(positions.iter().enumerate().all(|(at, row)| row["lane_seq"] == first + at as i64), "{positions:?}");
    }
}

#[tokio::test]
async fn a_savepoint_gives_keys_back() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("BEGIN; SAVEPOINT before").await.unwrap();
        enqueue(&client, STORED, "error").await.unwrap();
        failure(enqueue(&client, STORED, "error").await);
        client.batch_execute("ROLLBACK TO before").await.unwrap();
        assert_eq!(counts(&client, storage).await, [0; 4]);
        enqueue(&client, STORED, "error").await.expect("the key is free again");
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(counts(&client, storage).await, [1, 1, 0, 1]);
    }
}
