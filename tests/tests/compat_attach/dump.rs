//! An attached database is dumped and restored, and is attached where it arrives.

use std::io::Write;
use std::process::{Command, Stdio};

use awa_ingest_tests::{Db, Worker, assert_same_rows, failure, rows};
use serde_json::json;

use crate::setup::{assert_status, attached, companions, definition, insert, numbers, ready_args, run};

/// Ways from one database into another.
const ROUTES: [&str; 3] = ["plain", "custom", "parallel"];

fn copy(from: &Db, to: &Db, route: &str) {
    let format = if route == "plain" { "--format=plain" } else { "--format=custom" };
    let dump = from.cluster().program("pg_dump").args([format, from.name()]).output().expect("running pg_dump");
    assert!(dump.status.success(), "pg_dump: {}", String::from_utf8_lossy(&dump.stderr));
    match route {
        "plain" => feed(to.cluster().program("psql").args(["-qX", "-v", "ON_ERROR_STOP=1", "-d", to.name()]), &dump.stdout),
        "custom" => feed(to.cluster().program("pg_restore").args(["-e", "-1", "-d", to.name()]), &dump.stdout),
        _ => {
            // Workers seek in the file, so that it has to be one.
            let file = std::env::temp_dir().join(format!("awa_ingest-{}-{}.dump", std::process::id(), to.name()));
            std::fs::write(&file, &dump.stdout).expect("writing the dump");
            feed(to.cluster().program("pg_restore").args(["-e", "-j", "2", "-d", to.name()]).arg(&file), &[]);
            std::fs::remove_file(&file).expect("removing the dump");
        }
    }
}

fn feed(command: &mut Command, input: &[u8]) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starting a restore");
    child.stdin.take().expect("a pipe").write_all(input).expect("feeding the restore");
    let output = child.wait_with_output().expect("waiting for the restore");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

const TABLES: [&str; 6] = [
    "awa.ready_entries",
    "awa.ready_segments",
    "awa.deferred_jobs",
    "awa.job_unique_claims",
    "awa.queue_lanes",
    "awa.schema_version",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_attached_database_arrives_attached() {
    let source = attached().await;
    let original = source.connect().await;
    let detached = {
        run(&original, "BEGIN; SELECT awa_ingest.detach()").await;
        let detached = definition(&original).await;
        run(&original, "ROLLBACK").await;
        detached
    };
    let caller = source.role("caller").await;
    run(
        &original,
        &format!("GRANT EXECUTE ON FUNCTION awa.insert_job_compat TO {caller}; SELECT awa_ingest.grant_producer('{caller}')"),
    )
    .await;
    insert(&original, "'k', p_args => '1', p_unique_key => 'taken', p_unique_states => '11111111'").await;
    insert(&original, "'k', p_state => 'scheduled', p_run_at => '2041-01-01'").await;
    for route in ROUTES {
        let target = Db::bare().await;
        copy(&source, &target, route);
        let client = target.connect().await;
        for table in TABLES {
            assert_same_rows(table, &rows(&original, table, &[]).await, &rows(&client, table, &[]).await);
        }
        assert_status(&client, "replaced", route).await;
        assert_eq!((definition(&client).await, companions(&client).await), (definition(&original).await, 3), "{route}");
        insert(&client, "'k', p_args => '2'").await;
        insert(&client, "'k', p_args => '3', p_queue => 'new'").await;
        let refused = failure(client.batch_execute("DROP EXTENSION awa_ingest").await);
        assert_eq!(refused.sqlstate, "2BP01", "{route}: {refused:?}");
        let mut restored_caller = target.connect_as(&caller).await;
        restored_caller
            .transaction()
            .await
            .unwrap()
            .batch_execute("SELECT awa_ingest.insert_jobs_compat_batch('{k}')")
            .await
            .expect(route);

        run(&client, "SELECT awa_ingest.detach()").await;
        assert_eq!((definition(&client).await, companions(&client).await), (detached.clone(), 0), "{route}");
        insert(&client, "'k', p_args => '4', p_queue => 'new'").await;
        assert_eq!(ready_args(&client).await, numbers(1, 4), "{route}");
        let worker = Worker::builder().queue("default").queue("new").kind("k").start(&target).await;
        worker.wait_for(4).await;
        worker.stop().await;
        run(&client, "DROP EXTENSION awa_ingest").await;
    }
}

/// A copy of a copy; and one of a database that was attached once is not attached.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_detached_arrives_detached() {
    let source = attached().await;
    let (again, detached) = (Db::bare().await, Db::bare().await);
    copy(&source, &again, "plain");
    let client = again.connect().await;
    run(&client, "SELECT awa_ingest.detach()").await;
    copy(&again, &detached, "custom");
    let client = detached.connect().await;
    assert_status(&client, "original", "dumped when it was detached").await;
    assert_eq!(companions(&client).await, 0);
    run(&client, "SELECT awa_ingest.attach()").await;
    assert_eq!(insert(&client, "'k'").await["id"], json!(1));
}

/// The dump of a database that a migration has overwritten keeps awa's function.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_overwritten_arrives_overwritten() {
    let (source, target) = (attached().await, Db::bare().await);
    let original = source.connect().await;
    run(&original, "DELETE FROM awa.schema_version WHERE version > 17").await;
    source.migrate_awa().await;
    copy(&source, &target, "custom");
    let client = target.connect().await;
    assert_status(&client, "overwritten", "as in the source").await;
    assert_eq!(definition(&client).await, definition(&original).await);
    insert(&client, "'k'").await;
    run(&client, "SELECT awa_ingest.attach()").await;
    assert_status(&client, "replaced", "attached again").await;
    run(&client, "SELECT awa_ingest.detach()").await;
    assert_eq!(definition(&client).await, definition(&original).await);
}
