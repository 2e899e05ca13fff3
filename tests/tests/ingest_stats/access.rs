//! Who may look, and what there is to see without the table.

use awa_ingest_tests::{Db, Template, failure};

use crate::{counted, database, of, run};

#[tokio::test(flavor = "multi_thread")]
async fn without_preloading_nothing_is_counted() {
    let client = Db::awa().await.connect().await;
    run(&client, "LOAD 'awa_ingest'; SELECT awa_ingest.attach()").await;
    run(&client, "SELECT awa.enqueue('k'), awa.insert_job_compat('k')").await;
    run(&client, "BEGIN; SAVEPOINT s; SELECT awa.enqueue('k'); ROLLBACK TO s; COMMIT").await;
    assert_eq!(counted(&client).await, []);
    run(&client, "SELECT awa_ingest.reset_ingest_stats()").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_public() {
    let db = database(Template::Embedded).await;
    let (owner, role) = (db.connect().await, db.role("reader").await);
    run(&owner, &format!("GRANT USAGE ON SCHEMA awa_ingest TO {role}")).await;
    let client = db.connect_as(&role).await;
    let view = "SELECT FROM awa_ingest.ingest_stats";
    for refused in [view, "SELECT FROM awa_ingest.read_ingest_stats()", "SELECT awa_ingest.reset_ingest_stats()"] {
        assert_eq!(failure(client.batch_execute(refused).await).sqlstate, "42501", "{refused}");
    }
    run(&owner, &format!("GRANT SELECT ON awa_ingest.ingest_stats TO {role}")).await;
    assert_eq!(failure(client.batch_execute(view).await).sqlstate, "42501", "the view's function is the caller's to execute");
    run(&owner, &format!("GRANT EXECUTE ON FUNCTION awa_ingest.read_ingest_stats() TO {role}")).await;
    run(&client, view).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_extension_can_be_dropped_and_made_again() {
    let client = database(Template::Embedded).await.connect().await;
    run(&client, "SELECT awa.enqueue('k', queue => 'q'); SET awa_ingest.allow_drop = on; DROP EXTENSION awa_ingest").await;
    run(&client, "CREATE EXTENSION awa_ingest").await;
    assert_eq!(counted(&client).await, [of("q", 1, 1, 0)], "the counts are the server's");
    run(&client, "SELECT awa.enqueue('k', queue => 'q')").await;
    assert_eq!(counted(&client).await, [of("q", 2, 2, 0)]);
}
