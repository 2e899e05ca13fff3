//! A publication of all tables, as Debezium makes it: a table without replica identity would refuse deletes.

use awa_ingest_tests::{Template, failure, jobs};
use serde_json::json;

use crate::support::Side;

/// Tables of a schema that a publication of all tables includes.
fn published(schema: &str) -> String {
    format!(
        "FROM pg_class AS class
         LEFT JOIN pg_index AS index ON index.indrelid = class.oid AND index.indisvalid AND index.indimmediate
               AND CASE class.relreplident WHEN 'd' THEN index.indisprimary WHEN 'i' THEN index.indisreplident END
        WHERE class.relnamespace = '{schema}'::regnamespace AND class.relkind IN ('r', 'p') AND class.relpersistence = 'p'"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_has_a_replica_identity() {
    let side = Side::new(Template::Embedded).await;
    let without = format!(
        "SELECT string_agg(class.relname, ' ') {} AND class.relreplident <> 'f' AND index.indexrelid IS NULL",
        published("awa_ingest")
    );
    assert_eq!(side.value::<Option<String>>(&without).await, None);
    assert!(side.value::<i64>(&format!("SELECT count(*) {}", published("awa_ingest"))).await > 40, "the query finds the tables");
    side.publish("").await;
    let tables: Vec<String> = side.value(&format!("SELECT array_agg(class.oid::regclass::text) {}", published("awa_ingest"))).await;
    for table in tables {
        side.run(&format!("DELETE FROM {table}")).await;
    }
    side.run("DELETE FROM awa_ingest.maintenance_records").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adopt_under_a_publication() {
    let side = Side::new(Template::Embedded).await;
    side.publish("").await;
    let batch: Vec<_> = (0..5).map(|n| jobs::job("step", json!(n))).collect();
    jobs::enqueue_batch(&side.client, &batch).await;
    side.db.migrate_awa().await;
    side.run("SELECT awa.storage_auto_finalize_if_fresh('awa')").await;
    assert_eq!(side.value::<i64>("SELECT ready FROM awa_ingest.adopt()").await, 5);
}

/// awa's tables are awa's, and some have no identity: the page on operations says how to give them one.
#[tokio::test(flavor = "multi_thread")]
async fn awas_tables_get_theirs_by_hand() {
    let side = Side::new(Template::Awa).await;
    let without = format!("SELECT count(*) {} AND class.relreplident <> 'f' AND index.indexrelid IS NULL", published("awa"));
    assert!(side.value::<i64>(&without).await > 0, "the page need not say so any more");
    side.publish("").await;
    let delete = "DELETE FROM awa.job_unique_claims";
    assert_eq!(failure(side.client.batch_execute(delete).await).sqlstate, "55000");
    let section = OPERATIONS.split("\n### Change data capture").nth(1).expect("the section");
    let block = section.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).expect("its statement");
    side.run(block).await;
    assert_eq!(side.value::<i64>(&without).await, 0);
    side.run(delete).await;
}

const OPERATIONS: &str = include_str!("../../../docs/operations.md");
