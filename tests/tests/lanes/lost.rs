//! A lane that has lost a sequence: no repair makes jobs unreachable.

use crate::problems::{databases, enqueue, fix_as_printed, problem, problems, provision, repair, sequence};
use awa_ingest_tests::{Db, Storage, Worker, assert_lanes_intact, failure, rows};
use serde_json::json;
use tokio_postgres::Client;

async fn drop_sequence(client: &Client, storage: Storage, name: &str) {
    client.batch_execute(&format!("DROP SEQUENCE {}", storage.table(name))).await.unwrap();
}

async fn positions(client: &Client, storage: Storage) -> serde_json::Value {
    let sql = format!("(SELECT array_agg(lane_seq ORDER BY lane_seq) AS seqs FROM {})", storage.table("ready_entries"));
    rows(client, &sql, &[]).await[0]["seqs"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_lane_gets_a_new_sequence() {
    for (storage, db, _) in databases().await {
        let client = db.connect().await;
        for sides in [["enqueue"].as_slice(), &["claim"], &["enqueue", "claim"]] {
            provision(&client, "mail").await.unwrap();
            for side in sides {
                drop_sequence(&client, storage, &sequence(&client, side, "mail").await).await;
            }
            let found = problems(&client).await;
            assert_eq!(found.len(), sides.len());
            for problem in &found {
                assert_eq!(problem.problem, "missing");
                let call = "SELECT awa_ingest.provision_lane('mail', '2'::smallint, '0'::smallint)";
                assert_eq!(problem.statements, [call], "{problem:?}");
            }
            fix_as_printed(&db, &found[0]).await;
            assert_eq!(problems(&client).await, [], "one call makes both");
        }
        enqueue(&client, "mail").await.unwrap();
        assert_eq!(positions(&client, storage).await, json!([1]));
    }
}

/// A new sequence begins behind the last position.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_enqueue_sequence_is_made_where_it_was() {
    for (storage, db, owner) in databases().await {
        let client = db.connect().await;
        for _ in 0..3 {
            enqueue(&client, "mail").await.unwrap();
        }
        let name = sequence(&client, "enqueue", "mail").await;
        for by_function in [false, true] {
            drop_sequence(&client, storage, &name).await;
            assert_eq!(failure(provision(&client, "mail").await).sqlstate, "55000", "{storage:?}");
            assert_eq!(failure(enqueue(&client, "mail").await).sqlstate, "55000", "{storage:?}");
            let found = problem(&client).await;
            assert!(found.able.contains(&owner), "{found:?}");
            match by_function {
                false => fix_as_printed(&db, &found).await,
                true => assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "repaired"),
            }
            assert_eq!(problems(&client).await, []);
            enqueue(&client, "mail").await.unwrap();
        }
        assert_eq!(positions(&client, storage).await, json!([1, 2, 3, 4, 5]));
        assert_lanes_intact(&client, storage.schema(), "repaired").await;
    }
}

/// Where the ring is empty the claim cursor says how far the lane had come.
#[tokio::test(flavor = "multi_thread")]
async fn the_claim_cursor_counts_as_well() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        provision(&client, "mail").await.unwrap();
        let (enqueues, claims) = (sequence(&client, "enqueue", "mail").await, sequence(&client, "claim", "mail").await);
        client.batch_execute(&format!("SELECT setval('{}', 41)", storage.table(&claims))).await.unwrap();
        drop_sequence(&client, storage, &enqueues).await;
        assert_eq!(failure(provision(&client, "mail").await).sqlstate, "55000");
        fix_as_printed(&db, &problem(&client).await).await;
        enqueue(&client, "mail").await.unwrap();
        assert_eq!(positions(&client, storage).await, json!([42]));
    }
}

/// Nothing in the database says which jobs were claimed: that is for somebody to decide.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_claim_sequence_is_not_guessed() {
    for (storage, db, _) in databases().await {
        let client = db.connect().await;
        for _ in 0..3 {
            enqueue(&client, "mail").await.unwrap();
        }
        let name = sequence(&client, "claim", "mail").await;
        drop_sequence(&client, storage, &name).await;
        let found = problem(&client).await;
        assert_eq!((found.problem.as_str(), &found.sequence), ("missing", &name));
        assert!(found.statements.is_empty() && found.able.is_empty(), "{found:?}");
        assert!(found.detail.contains("positions below 4"), "{found:?}");
        let refused = failure(repair(&client, storage.schema(), &name).await);
        assert_eq!(refused.sqlstate, "55000", "{refused:?}");
        let refused = failure(provision(&client, "mail").await);
        assert!(refused.sqlstate == "55000" && refused.message.contains("lost its claim sequence"), "{refused:?}");
        let gone = "SELECT to_regclass($1) IS NULL";
        assert!(client.query_one(gone, &[&storage.table(&name)]).await.unwrap().get::<_, bool>(0));
        let by_hand = format!("CREATE SEQUENCE {}", storage.table(&name));
        client.batch_execute(&by_hand).await.unwrap();
    }
}

/// Neither sequence, but jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_lost_both_is_not_begun_anew() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        enqueue(&client, "mail").await.unwrap();
        for side in ["enqueue", "claim"] {
            drop_sequence(&client, storage, &sequence(&client, side, "mail").await).await;
        }
        assert_eq!(failure(provision(&client, "mail").await).sqlstate, "55000");
        let found = problems(&client).await;
        assert_eq!(found.iter().map(|problem| problem.statements.is_empty()).collect::<Vec<_>>(), [false, true], "{found:#?}");
        fix_as_printed(&db, &found[0]).await;
        assert_eq!(failure(provision(&client, "mail").await).sqlstate, "55000", "the claim sequence is still missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_of_that_name_is_left_alone() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        provision(&client, "mail").await.unwrap();
        let name = sequence(&client, "claim", "mail").await;
        drop_sequence(&client, storage, &name).await;
        client.batch_execute(&format!("CREATE TABLE {} (i int)", storage.table(&name))).await.unwrap();
        let found = problem(&client).await;
        assert_eq!((found.problem.as_str(), found.statements.len(), found.able.len()), ("missing", 0, 0), "{found:?}");
        assert_eq!(failure(repair(&client, storage.schema(), &name).await).sqlstate, "55000");
    }
}

/// A head that has forgotten its sequence's name, or names nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_put_back() {
    for (storage, db, _) in databases().await {
        let client = db.connect().await;
        enqueue(&client, "mail").await.unwrap();
        for (side, value) in [("enqueue", "NULL"), ("claim", "NULL"), ("enqueue", "'no such'")] {
            let heads = storage.table(&format!("queue_{side}_heads"));
            let forget = format!(
                "ALTER TABLE {heads} DISABLE TRIGGER USER; UPDATE {heads} SET seq_name = {value};
                ALTER TABLE {heads} ENABLE ALWAYS TRIGGER USER"
            );
            let forget = match storage {
                Storage::Embedded => forget.replace("TRIGGER USER", "TRIGGER lane_sequence"),
                Storage::Attached => forget.replace("ENABLE ALWAYS", "ENABLE"),
            };
            client.batch_execute(&forget).await.unwrap();
            let found = problem(&client).await;
            assert_eq!((found.problem.as_str(), &found.sequence), ("missing", &sequence(&client, side, "mail").await), "{value}");
            fix_as_printed(&db, &found).await;
            enqueue(&client, "mail").await.unwrap();
        }
        assert_eq!(positions(&client, storage).await, json!([1, 2, 3, 4]));
    }
}

/// A real worker gets what comes after the repair.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_after_a_repair_are_worked() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let worker = Worker::builder().queue("mail").kind("k").start(&db).await;
    for _ in 0..5 {
        enqueue(&client, "mail").await.unwrap();
    }
    worker.wait_for(5).await;
    worker.stop().await;
    let name = sequence(&client, "enqueue", "mail").await;
    drop_sequence(&client, Storage::Attached, &name).await;
    assert_eq!(repair(&client, "awa", &name).await.unwrap(), "repaired");
    enqueue(&client, "mail").await.unwrap();
    let worker = Worker::builder().queue("mail").kind("k").start(&db).await;
    worker.wait_for(1).await;
    worker.stop().await;
}
