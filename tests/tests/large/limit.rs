//! A batch that is larger than `jsonb` can be.

use awa_ingest_tests::{Db, failure};

/// The server's own limit, with the ways that do not have it.
#[tokio::test]
async fn a_batch_beyond_jsonb_gets_a_hint() {
    let client = Db::embedded().await.connect().await;
    let job = "'{\"kind\": \"k\", \"args\": \"' || repeat('x', 1000000) || '\"},'";
    let sql = format!("SELECT awa.enqueue_batch('[' || repeat({job}, 270) || '{{\"kind\": \"k\"}}]')");
    let refused = failure(client.batch_execute(&sql).await);
    assert_eq!(refused.sqlstate, "54000", "{refused:?}");
    assert!(refused.hint.contains("COPY") && refused.hint.contains("enqueue_csv"), "{refused:?}");
    client.batch_execute("SELECT awa.enqueue('k')").await.expect("a usable session");
}
