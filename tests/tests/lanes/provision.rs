//! `awa_ingest.provision_lane` takes any queue and priority, and refuses what is no lane.

use awa_ingest_tests::{Storage, assert_same_rows, failure, rows};
use serde_json::json;
use tokio_postgres::Client;

async fn provision(
    client: &Client,
    queue: Option<&str>,
    priority: Option<i16>,
    shard: Option<i16>,
) -> Result<u64, tokio_postgres::Error> {
    client.execute("SELECT awa_ingest.provision_lane($1, $2, $3)", &[&queue, &priority, &shard]).await
}

fn odd_names() -> Vec<String> {
    let mut names =
        ["", " ", "quo'te\"d", "a.b.c", "a:1:2", "ünïcode 🐘", "tab\tand\nnewline", "q#3", "%I %s $1", "back\\slash", "NULL"]
            .map(str::to_owned)
            .to_vec();
    names.extend(["x".repeat(63), "y".repeat(64), "🐘".repeat(200), "long ".repeat(2000)]);
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn any_name_and_priority_makes_a_lane() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let names = odd_names();
        for (queue, priority, shard) in names.iter().flat_map(|queue| [(queue, i16::MIN, 0), (queue, 2, 63), (queue, i16::MAX, 31)])
        {
            // Once more changes nothing.
            for _ in 0..2 {
                let made = provision(&client, Some(queue), Some(priority), Some(shard)).await;
                made.unwrap_or_else(|error| panic!("{queue:?} {priority} {shard}: {error:?}"));
            }
        }
        let lanes = 3 * names.len();
        for (table, expected) in [("queue_lanes", lanes), ("queue_enqueue_heads", lanes), ("queue_claim_heads", lanes)] {
            assert_eq!(rows(&client, &storage.table(table), &[]).await.len(), expected, "{table}, {storage:?}");
        }
        for side in ["enqueue", "claim"] {
            let named = format!(
                "(SELECT DISTINCT to_regclass('{}.' || seq_name)::text FROM {} WHERE to_regclass('{0}.' || seq_name) IS NOT NULL)",
                storage.schema(),
                storage.table(&format!("queue_{side}_heads"))
            );
            assert_eq!(rows(&client, &named, &[]).await.len(), lanes, "a sequence for each, {side}, {storage:?}");
        }
    }
}

/// A lane made beforehand is the one that jobs take.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_go_to_the_lane_that_was_made() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let names: Vec<String> = odd_names().into_iter().filter(|name| !name.is_empty() && name.chars().count() <= 200).collect();
        for queue in &names {
            provision(&client, Some(queue), Some(2), Some(0)).await.expect(queue);
        }
        let lanes = rows(&client, &storage.table("queue_enqueue_heads"), &[]).await;
        for queue in &names {
            let batch = json!([{"kind": "k", "queue": queue}, {"kind": "k", "queue": queue}]);
            client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await.expect(queue);
        }
        assert_same_rows("lanes", &lanes, &rows(&client, &storage.table("queue_enqueue_heads"), &[]).await);
        let positions = format!(
            "(SELECT queue, array_agg(lane_seq ORDER BY job_id) AS seqs FROM {} GROUP BY queue)",
            storage.table("ready_entries")
        );
        for row in rows(&client, &positions, &[]).await {
            assert_eq!(row["seqs"], json!([1, 2]), "{row}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_lane_is_refused() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let cases = [
            (None, Some(2), Some(0)),
            (Some("q"), None, Some(0)),
            (Some("q"), Some(2), None),
            (Some("q"), Some(2), Some(-1)),
            (Some("q"), Some(2), Some(64)),
            (Some("q"), Some(2), Some(i16::MIN)),
            (Some("q"), Some(2), Some(i16::MAX)),
        ];
        for (queue, priority, shard) in cases {
            let refused = failure(provision(&client, queue, priority, shard).await);
            assert_eq!(refused.sqlstate, "22023", "{queue:?} {priority:?} {shard:?}, {storage:?}: {refused:?}");
        }
        for table in ["queue_lanes", "queue_enqueue_heads", "queue_claim_heads"] {
            assert!(rows(&client, &storage.table(table), &[]).await.is_empty(), "{table}, {storage:?}");
        }
    }
}

/// Half a lane is completed, whichever half is there.
#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_lane_is_completed() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let enqueue = "SELECT awa.enqueue('k')";
        for table in ["queue_enqueue_heads", "queue_claim_heads", "queue_lanes"] {
            provision(&client, Some("default"), Some(2), Some(0)).await.unwrap();
            let before = rows(&client, &storage.table(table), &[]).await;
            client.batch_execute(&format!("DELETE FROM {}", storage.table(table))).await.unwrap();
            provision(&client, Some("default"), Some(2), Some(0)).await.unwrap();
            assert_same_rows(table, &before, &rows(&client, &storage.table(table), &[]).await);
            client.batch_execute(enqueue).await.expect(table);
        }
    }
}

/// Who may create in the storage's schema can take the names of a lane's sequences before there is the lane, and would move its positions and
/// its claim cursor.
#[tokio::test(flavor = "multi_thread")]
async fn sequences_of_others_are_not_taken_for_a_new_lane() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let superuser = db.connect().await;
        let (role, producer) = (db.role("other").await, db.role("producer").await);
        let grants =
            format!("GRANT USAGE, CREATE ON SCHEMA {} TO {role}; SELECT awa_ingest.grant_producer('{producer}')", storage.schema());
        superuser.batch_execute(&grants).await.unwrap();
        let (other, producer) = (db.connect_as(&role).await, db.connect_as(&producer).await);
        for side in ["enqueue", "claim"] {
            let name = format!("SELECT format('%s.queue_{side}_seq_%s', $1::text, md5('mail:2:0'))");
            let name: String = superuser.query_one(&name, &[&storage.schema()]).await.unwrap().get(0);
            other.batch_execute(&format!("CREATE SEQUENCE {name}; GRANT ALL ON SEQUENCE {name} TO PUBLIC")).await.unwrap();
            let refused = failure(producer.batch_execute("SELECT awa.enqueue('k', queue => 'mail')").await);
            assert!(refused.sqlstate == "55000" && refused.detail.contains(&role), "{side}, {storage:?}: {refused:?}");
            other.batch_execute(&format!("DROP SEQUENCE {name}")).await.unwrap();
        }
        producer.batch_execute("SELECT awa.enqueue('k', queue => 'mail')").await.unwrap();
    }
}
