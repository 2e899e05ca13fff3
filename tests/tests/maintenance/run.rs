//! `awa_ingest.run_maintenance` itself: its arguments, its record, and whose rights it has.

use awa_ingest_tests::{Db, Template, failure, rows};
use serde_json::Value;

use crate::actor::ROWS;
use crate::stage::{Stage, Step, assert_step, maintain, only, run, try_maintain};

const RUNS: &str =
    "(SELECT task, relation, ring, slot, outcome, reason, rows, duration, sqlstate, error FROM awa_ingest.maintenance_runs)";

#[tokio::test(flavor = "multi_thread")]
async fn there_are_three_tasks() {
    let stage = Stage::new().await;
    for task in ["'vacuum'", "''", "'Prune'", "'prune '", "NULL"] {
        let call = format!("SELECT * FROM awa_ingest.run_maintenance({task})");
        assert_eq!(failure(stage.client.execute(&call, &[]).await).sqlstate, "22023", "{task}");
    }
    assert!(rows(&stage.client, RUNS, &[]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prune_must_see_what_others_commit() {
    let stage = Stage::new().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        stage.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert_eq!(failure(try_maintain(&stage.client, "prune").await).sqlstate, "0A000", "{level}");
        stage.run("ROLLBACK").await;
        stage.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
        assert!(maintain(&stage.client, "statistics").await.iter().any(|step| step.outcome == "analyzed"), "{level}");
        stage.run("COMMIT").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn storages_without_rings_of_awa() {
    let canonical = Db::of(Template::AwaCanonical).await;
    let client = canonical.connect().await;
    run(&client, "CREATE EXTENSION awa_ingest").await;
    for task in ["prune", "statistics"] {
        let steps = maintain(&client, task).await;
        assert_eq!((steps.len(), steps[0].ended()), (1, ("noop", Some("canonical_engine"))), "{task}");
    }
    let client = Db::embedded().await.connect().await;
    let steps = maintain(&client, "prune").await;
    assert_eq!((steps.len(), steps[0].ended()), (1, ("noop", Some("embedded_storage"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_is_not_known() {
    let stage = Stage::new().await;
    stage.run("ALTER TABLE awa.deferred_jobs ADD COLUMN anew integer NOT NULL").await;
    for task in ["prune", "statistics"] {
        assert_eq!(failure(try_maintain(&stage.client, task).await).sqlstate, "55000", "{task}");
    }
    assert!(rows(&stage.client, RUNS, &[]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_returns_is_recorded() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete", "fail"]).await;
    stage.turn_all().await;
    for task in ["prune", "statistics"] {
        stage.run("TRUNCATE awa_ingest.maintenance_records").await;
        let returned = rows(&stage.client, &format!("awa_ingest.run_maintenance('{task}')"), &[]).await;
        assert!(returned.len() > 3, "{returned:?}");
        assert_eq!(rows(&stage.client, RUNS, &[]).await, returned);
    }
    let started = "SELECT bool_and(started_at BETWEEN now() - interval '1 minute' AND now() AND repeated = 0)
                   FROM awa_ingest.maintenance_runs";
    assert!(stage.value::<bool>(started).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_runs_are_kept() {
    let stage = Stage::new().await;
    stage.run("SET awa_ingest.maintenance_history = 6").await;
    for _ in 0..3 {
        stage.prune().await;
    }
    let kept = "SELECT array_agg(id ORDER BY id) FROM awa_ingest.maintenance_runs";
    assert_eq!(stage.value::<Vec<i64>>(kept).await, [7, 8, 9, 10, 11, 12], "four steps a run");
    stage.run("SET awa_ingest.maintenance_history = 1").await;
    stage.prune().await;
    assert_eq!(stage.value::<Vec<i64>>(kept).await, [16]);
}

/// Others that trim the record meanwhile are in nobody's way, also not where a transaction keeps its snapshot.
#[tokio::test(flavor = "multi_thread")]
async fn the_record_is_trimmed_beside_others() {
    let stage = Stage::new().await;
    stage.prune().await;
    let other = stage.db.connect().await;
    run(&other, "SET awa_ingest.maintenance_history = 1; BEGIN").await;
    maintain(&other, "prune").await;
    stage.run("SET awa_ingest.maintenance_history = 1").await;
    stage.prune().await;
    let keeping = stage.db.connect().await;
    run(&keeping, "SET awa_ingest.maintenance_history = 1; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT").await;
    run(&other, "COMMIT").await;
    let returned = try_maintain(&keeping, "statistics").await.map(|steps| steps.len());
    assert_eq!(returned.map_err(|error| failure::<()>(Err(error)).sqlstate), Ok(15));
}

/// What goes wrong in one step is in its row, and the others are run.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete", "fail"]).await;
    stage.turn_all().await;
    stage
        .run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'not %', TG_TABLE_NAME; END$$;
             CREATE TRIGGER refuse BEFORE TRUNCATE ON awa.done_entries_0 EXECUTE FUNCTION refuse()",
        )
        .await;
    let before = stage.dump().await;
    let steps = stage.prune().await;
    let step = only(&steps, "queue");
    assert_eq!((step.slot, step.ended(), step.rows), (Some(0), ("failed", None), None));
    assert_eq!((step.sqlstate.as_deref(), step.error.as_deref()), (Some("P0001"), Some("not done_entries_0")));
    assert_step(&steps, "claim", Some(0), ("pruned", None));
    assert_step(&steps, "rollup", Some(0), ("rolled", None));
    for (table, rows) in stage.dump().await {
        if ["ready_", "done_", "queue_ring", "queue_terminal_rollups"].iter().any(|name| table.contains(name)) {
            assert_eq!(rows, before[&table], "{table}");
        }
    }
    stage.run("DROP TRIGGER refuse ON awa.done_entries_0").await;
    assert_step(&stage.prune().await, "queue", Some(0), ("pruned", None));
    assert_eq!((stage.rollups().await, stage.counts(ROWS).await.terminal), (vec![(ROWS.into(), 1, 0)], 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_transaction_that_is_rolled_back() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete", "fail"]).await;
    stage.turn_all().await;
    let before = stage.dump().await;
    for end in ["ROLLBACK", "ROLLBACK TO before; COMMIT"] {
        stage.run("BEGIN; SAVEPOINT before").await;
        assert_step(&stage.prune().await, "queue", Some(0), ("pruned", None));
        stage.run(end).await;
        stage.assert_unchanged(&before, end).await;
        assert!(rows(&stage.client, RUNS, &[]).await.is_empty(), "{end}");
    }
}

/// A step needs the caller's own rights; what lacks is said in its row.
#[tokio::test(flavor = "multi_thread")]
async fn it_has_the_callers_rights() {
    let stage = Stage::new().await;
    stage.play(ROWS, &["complete", "fail"]).await;
    stage.turn_all().await;
    let role = stage.db.role("operator").await;
    let session = stage.db.connect_as(&role).await;
    stage.run(&format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}")).await;
    assert_eq!(failure(try_maintain(&session, "prune").await).sqlstate, "42501", "not for everybody");
    stage.run(&format!("GRANT EXECUTE ON FUNCTION awa_ingest.run_maintenance TO {role}")).await;
    assert_eq!(failure(try_maintain(&session, "prune").await).sqlstate, "42501", "may not look for the storage");
    stage.run(&format!("GRANT ALL ON ALL TABLES IN SCHEMA awa TO {role}; REVOKE TRUNCATE ON awa.done_entries_0 FROM {role}")).await;
    assert_eq!(failure(try_maintain(&session, "prune").await).sqlstate, "42501", "may not record");
    stage.run(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON awa_ingest.maintenance_records TO {role}")).await;
    stage.run(&format!("GRANT SELECT ON ALL SEQUENCES IN SCHEMA awa TO {role}")).await;
    let steps = maintain(&session, "prune").await;
    assert_eq!(
        (only(&steps, "queue").ended(), only(&steps, "queue").sqlstate.as_deref()),
        (("failed", None), Some("42501")),
        "{steps:#?}"
    );
    assert_step(&steps, "claim", Some(0), ("pruned", None));
    stage.run(&format!("GRANT TRUNCATE ON awa.done_entries_0 TO {role}")).await;
    assert_step(&maintain(&session, "prune").await, "queue", Some(0), ("pruned", None));
    let steps = maintain(&session, "statistics").await;
    // An empty table needs no rights.
    let refused = |step: &Step| step.ended() == ("failed", None) && step.sqlstate.as_deref() == Some("42501");
    assert!(
        steps.iter().any(refused) && steps.iter().all(|step| refused(step) || step.reason.as_deref() == Some("empty")),
        "{steps:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_for_everybody() {
    let stage = Stage::new().await;
    let role = stage.db.role("anybody").await;
    stage.run(&format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}")).await;
    let session = stage.db.connect_as(&role).await;
    // The server knows whose settings they are when the library is loaded.
    run(&session, "SET awa_ingest.failed_retention = 0").await;
    stage.run(&format!("GRANT EXECUTE ON FUNCTION awa_ingest.status() TO {role}")).await;
    let retention = "SELECT current_setting('awa_ingest.failed_retention') FROM awa_ingest.status()";
    assert!(session.query(retention, &[]).await.is_err(), "may not read awa's state");
    let retention = "SELECT current_setting('awa_ingest.failed_retention')";
    assert_eq!(session.query_one(retention, &[]).await.expect(retention).get::<_, String>(0), "3d");
    for statement in [
        "SELECT FROM awa_ingest.run_maintenance('prune')",
        "SELECT awa_ingest.analyze_relation('awa.ready_entries')",
        "SELECT FROM awa_ingest.ring_slots()",
        "SELECT FROM awa_ingest.rings",
        "SELECT FROM awa_ingest.maintenance_records",
        "INSERT INTO awa_ingest.maintenance_records (started_at, task, outcome, duration) VALUES (now(), 'prune', 'noop', '0')",
        "SET awa_ingest.failed_retention = 0",
        "SET awa_ingest.clock_offset = 1",
        "SET awa_ingest.maintenance_history = 1",
    ] {
        assert_eq!(failure(session.batch_execute(statement).await).sqlstate, "42501", "{statement}");
    }
    assert_eq!(rows(&stage.client, RUNS, &[]).await, [] as [Value; 0]);
    // Not even those who have the rights that are needed inside.
    for function in ["run_maintenance(text)", "analyze_relation(regclass)", "ring_slots()"] {
        let may = format!("SELECT has_function_privilege('{role}', 'awa_ingest.{function}', 'EXECUTE')");
        assert!(!stage.value::<bool>(&may).await, "{function}");
    }
}
