//! The storage changes while a COPY streams in: its jobs must not go where nobody works them.

use awa_ingest_tests::{Db, Session, Storage, Template, failure, rows, within};
use serde_json::Value;

const COPY: &str = "COPY awa.ingest (kind, queue) FROM STDIN WITH (FORMAT csv)";

/// Also in a lane that exists, and in a transaction that has looked for awa before.
#[tokio::test(flavor = "multi_thread")]
async fn awa_is_installed_meanwhile() {
    for begin in ["SELECT", "BEGIN; SELECT awa.enqueue('k', queue => 'q')"] {
        let db = Db::embedded().await;
        let other = db.connect().await;
        other.execute("SELECT awa.enqueue('first', queue => 'q')", &[]).await.unwrap();
        let session = Session::open(&db).await;
        session.client.batch_execute(begin).await.unwrap();
        let mut copy = session.copy(COPY).await;
        copy.send("lost,q\nlost,q\n").await.unwrap();
        copy.wait_until_taken(&other).await;

        db.migrate_awa().await;
        other.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
        let refused = failure(within("the COPY", copy.finish()).await);
        assert_eq!(refused.sqlstate, "40001", "{refused:?}");
        session.client.batch_execute("ROLLBACK").await.unwrap();

        let again = session.client.execute("INSERT INTO awa.ingest (kind, queue) VALUES ('found', 'q')", &[]).await;
        assert_eq!(again.unwrap(), 1);
        let kinds = |table: &'static str| {
            let other = &other;
            async move { rows(other, &format!("(SELECT kind FROM {table})"), &[]).await }
        };
        assert_eq!(kinds("awa.ready_entries").await, [serde_json::json!({"kind": "found"})]);
        assert_eq!(kinds("awa_ingest.ready_entries").await, [serde_json::json!({"kind": "first"})]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_under_way_finds_an_awa_that_was_just_installed() {
    let db = Db::embedded().await;
    let (client, other) = (db.connect().await, db.connect().await);
    let stays = db.connect().await;
    stays.batch_execute("BEGIN; SELECT awa.enqueue('stays', queue => 'elsewhere')").await.unwrap();
    client.batch_execute("BEGIN; SAVEPOINT s; SELECT awa.enqueue('before'); ROLLBACK TO s").await.unwrap();
    db.migrate_awa().await;
    other.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
    client.batch_execute("SELECT awa.enqueue('after'); COMMIT").await.unwrap();
    let refused = failure(stays.batch_execute("COMMIT").await);
    assert_eq!(refused.sqlstate, "40001", "nobody would work it: {refused:?}");
    assert_eq!(rows(&other, "awa_ingest.ready_entries", &[]).await, Vec::<Value>::new());
    assert_eq!(rows(&other, "(SELECT kind FROM awa.ready_entries)", &[]).await, [serde_json::json!({"kind": "after"})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn awas_engine_changes_meanwhile() {
    let db = Db::of(Template::Awa).await;
    let other = db.connect().await;
    let session = Session::open(&db).await;
    let mut copy = session.copy(COPY).await;
    copy.send("lost,q\n").await.unwrap();
    copy.wait_until_taken(&other).await;
    let canonical =
        "UPDATE awa.storage_transition_state SET current_engine = 'canonical', prepared_engine = NULL, state = 'canonical'";
    other.batch_execute(canonical).await.unwrap();
    let refused = failure(within("the COPY", copy.finish()).await);
    assert_eq!(refused.sqlstate, "40001", "{refused:?}");
    assert_eq!(rows(&other, "awa.jobs_hot", &[]).await, Vec::<Value>::new());
    for table in ["ready_entries", "deferred_jobs", "queue_lanes"] {
        assert_eq!(rows(&other, &Storage::Attached.table(table), &[]).await, Vec::<Value>::new(), "{table}");
    }
}
