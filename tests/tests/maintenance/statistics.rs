//! The statistics that the planner needs of the tables that autovacuum does not analyze.

use std::sync::Arc;

use awa_ingest_tests::{Cluster, Db, Storage, jobs, within};
use tokio_postgres::Client;

use crate::actor::{BATCHES, ROWS};
use crate::stage::{Stage, Step, job, maintain, run};

const TABLES: [&str; 15] = [
    "ready_entries",
    "ready_segments",
    "ready_claim_attempt_batches",
    "ready_tombstones",
    "done_entries",
    "receipt_completion_batches",
    "receipt_completion_tombstones",
    "queue_terminal_count_deltas",
    "leases",
    "lease_claims",
    "lease_claim_batches",
    "lease_claim_closures",
    "lease_claim_closure_batches",
    "queue_enqueue_heads",
    "queue_claim_heads",
];

/// Jobs of all sorts, worked and waiting.
async fn fill(stage: &Stage) {
    stage.enqueue(ROWS, &["complete", "fail", "complete"]).await;
    let ids = stage.enqueue(BATCHES, &["complete", "complete", "cancel"]).await;
    stage.work(6).await;
    stage.run(&format!("DELETE FROM awa.jobs WHERE id = {}", ids[0])).await;
    stage.enqueue(ROWS, &["complete", "complete"]).await;
}

/// Rows of a table, those that the planner assumes, and whether it knows anything about its columns: of a partitioned table's, with the
/// partitions.
async fn known(client: &Client, table: &str) -> (i64, i64, bool) {
    let sql = format!(
        "SELECT (SELECT count(*) FROM {table}), class.reltuples::bigint,
                EXISTS (SELECT FROM pg_statistic WHERE starelid = class.oid AND stainherit = (class.relkind = 'p'))
           FROM pg_class AS class WHERE class.oid = '{table}'::regclass"
    );
    let row = client.query_one(&sql, &[]).await.expect(&sql);
    (row.get(0), row.get(1), row.get(2))
}

async fn assert_all_are_known(client: &Client, schema: &str, steps: &[Step]) {
    let (mut expected, mut filled) = (Vec::new(), 0);
    for table in TABLES {
        let table = format!("{schema}.{table}");
        let (rows, tuples, has_statistics) = known(client, &table).await;
        let sizes = format!("SELECT sum(pg_relation_size(inhrelid)) = 0 FROM pg_inherits WHERE inhparent = '{table}'::regclass");
        if client.query_one(&sizes, &[]).await.expect(&sizes).get::<_, Option<bool>>(0) == Some(true) {
            assert_eq!((tuples, has_statistics), (-1, false), "{table}: of an empty table nothing is known");
            expected.push((Some(table), "noop", Some("empty".into()), None));
            continue;
        }
        assert_eq!((tuples, has_statistics), (rows, rows > 0), "{table}");
        filled += usize::from(rows > 0);
        expected.push((Some(table), "analyzed", None, Some(rows)));
    }
    let found: Vec<_> = steps.iter().map(|step| (step.relation.clone(), &*step.outcome, step.reason.clone(), step.rows)).collect();
    assert_eq!(found, expected);
    assert!(filled > 10, "most tables have rows, {filled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parents_and_heads_are_analyzed() {
    for stage in [Stage::new().await, Stage::elsewhere("elsewhere").await] {
        fill(&stage).await;
        for table in ["ready_entries", "queue_enqueue_heads", "queue_claim_heads"] {
            let (_, tuples, has_statistics) = known(&stage.client, &format!("{}.{table}", stage.schema)).await;
            assert_eq!((tuples, has_statistics), (-1, false), "nobody analyzed {table} before");
        }
        let steps = maintain(&stage.client, "statistics").await;
        assert_all_are_known(&stage.client, stage.schema, &steps).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_storage_has_fewer() {
    let client = Storage::Embedded.db().await.connect().await;
    jobs::enqueue_batch(&client, &[job(ROWS, "complete"), job(BATCHES, "complete")]).await;
    let steps = maintain(&client, "statistics").await;
    let found: Vec<_> = steps.iter().map(|step| (step.relation.as_deref().unwrap_or(""), &*step.outcome, step.rows)).collect();
    let tables =
        ["ready_entries", "ready_segments", "queue_enqueue_heads", "queue_claim_heads"].map(|table| format!("awa_ingest.{table}"));
    let expected: Vec<_> = tables.iter().map(|table| (&**table, "analyzed", Some(2))).collect();
    assert_eq!(found, expected);
    for table in &tables {
        assert_eq!(known(&client, table).await, (2, 2, true), "{table}");
    }
}

/// Analyzed, or left alone because it is empty.
fn is_done(step: &Step) -> bool {
    matches!(step.ended(), ("analyzed", None) | ("noop", Some("empty")))
}

/// The log of a server that would tell of every wait for a lock that takes a millisecond.
fn cluster() -> Arc<Cluster> {
    Cluster::start(&[("log_lock_waits", "on"), ("deadlock_timeout", "1ms"), ("autovacuum", "off")])
}

/// Lines that are about `table`, or tell of something gone wrong.
fn noted(db: &Db, table: &str) -> Vec<String> {
    let is_noted = |line: &&str| {
        let waits = line.contains("still waiting") || line.contains("acquired");
        waits || line.contains("skipping") || line.contains("ERROR") || line.contains("WARNING") || line.contains(table)
    };
    db.cluster().log().lines().filter(is_noted).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_others_hold_is_skipped_at_once() {
    let stage = Stage::on(cluster()).await;
    fill(&stage).await;
    let holder = stage.db.connect().await;
    for mode in ["SHARE UPDATE EXCLUSIVE", "ACCESS EXCLUSIVE"] {
        for table in ["ready_entries", "done_entries", "queue_claim_heads"] {
            run(&holder, &format!("BEGIN; LOCK TABLE ONLY awa.{table} IN {mode} MODE")).await;
            let logged = noted(&stage.db, "no table");
            let steps = maintain(&stage.client, "statistics").await;
            for step in &steps {
                let is_held = step.relation == Some(format!("awa.{table}"));
                assert_eq!(step.outcome == "skipped_lock", is_held, "{mode} of {table}: {step:?}");
                assert!(is_held || is_done(step), "{mode} of {table}: {step:?}");
            }
            assert_eq!(steps.len(), TABLES.len(), "{mode} of {table}");
            assert_eq!(noted(&stage.db, "no table"), logged, "neither waits nor warnings, {mode} of {table}");
            run(&holder, "ROLLBACK").await;
        }
    }
    let steps = maintain(&stage.client, "statistics").await;
    assert!(steps.iter().all(is_done), "{steps:#?}");
}

/// Whoever analyzes a partitioned table reads all partitions. One that is held is waited for, but not for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_others_hold() {
    let stage = Stage::on(Cluster::start(&[("autovacuum", "off")])).await;
    fill(&stage).await;
    let holder = stage.db.connect().await;
    run(&holder, "BEGIN; LOCK TABLE awa.ready_entries_3 IN ACCESS EXCLUSIVE MODE").await;
    let logged = noted(&stage.db, "ready_entries");
    let steps = within("the statistics", maintain(&stage.client, "statistics")).await;
    assert_eq!((&*steps[0].outcome, steps[0].rows), ("skipped_lock", None));
    assert!(steps[1..].iter().all(is_done), "{steps:#?}");
    assert_eq!(noted(&stage.db, "ready_entries"), logged);
    run(&holder, "ROLLBACK").await;

    // One that only another ANALYZE keeps is left out, the table is not.
    run(&holder, "BEGIN; LOCK TABLE awa.ready_entries_3 IN SHARE UPDATE EXCLUSIVE MODE").await;
    let steps = maintain(&stage.client, "statistics").await;
    assert!(steps.iter().all(is_done), "{steps:#?}");
    assert_eq!(noted(&stage.db, "ready_entries"), logged);
}
