//! Restores other than that of a whole dump into an empty database: docs/operations.md, "Back up and restore".

use std::process::{Command, Stdio};

use awa_ingest_tests::{Db, Storage, Worker, assert_same_rows, rows};
use tokio_postgres::Client;

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// Dumps a database in a format that pg_restore reads, into a file.
fn dump(db: &Db) -> std::path::PathBuf {
    let file = std::env::temp_dir().join(format!("awa_ingest-{}-{}.dump", std::process::id(), db.name()));
    let mut command = db.cluster().program("pg_dump");
    let dumped = command.args(["--format=custom", db.name()]).output().expect("running pg_dump");
    assert!(dumped.status.success(), "pg_dump: {}", String::from_utf8_lossy(&dumped.stderr));
    std::fs::write(&file, &dumped.stdout).expect("writing the dump");
    file
}

/// Runs a program to its end. Returns what it said if it failed.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("running a program");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn restore(db: &Db, file: &std::path::Path, options: &[&str]) -> Result<(), String> {
    run(db.cluster().program("pg_restore").args(options).args(["-d", db.name()]).arg(file))
}

const CONTENTS: [&str; 7] = [
    "awa_ingest.ready_entries",
    "awa_ingest.ready_segments",
    "awa_ingest.deferred_jobs",
    "awa_ingest.job_unique_claims",
    "awa_ingest.queue_enqueue_heads",
    "awa_ingest.queue_ring_state",
    "(SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'awa_ingest')",
];

async fn contents(client: &Client) -> Vec<Vec<serde_json::Value>> {
    let mut all = Vec::new();
    for content in CONTENTS {
        all.push(rows(client, content, &[]).await);
    }
    all
}

#[track_caller]
fn assert_same(expected: &[Vec<serde_json::Value>], found: &[Vec<serde_json::Value>]) {
    for (content, (expected, found)) in CONTENTS.iter().zip(expected.iter().zip(found)) {
        assert_same_rows(content, expected, found);
    }
}

const JOBS: &str = "SELECT awa.enqueue('step');
    SELECT awa.enqueue('later', run_at => now() + interval '1 day');
    SELECT awa.enqueue('once', queue => 'other', uniqueness => 'true')";

/// An embedded storage with jobs, whose ring stands where it began or has turned.
async fn filled(turned: bool) -> (Db, Client) {
    let db = Db::embedded().await;
    let client = db.connect().await;
    client.batch_execute(JOBS).await.unwrap();
    if turned {
        client.batch_execute("UPDATE awa_ingest.queue_ring_state SET current_slot = 3, generation = 19").await.unwrap();
        client.batch_execute("SELECT awa.enqueue('step')").await.unwrap();
    }
    (db, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_and_data_of_an_embedded_storage_are_restored_one_after_the_other() {
    for (turned, options) in [(false, ["-e", "-a", "--disable-triggers"]), (true, ["-e", "-a", "-1"])] {
        let (source, original) = filled(turned).await;
        let file = dump(&source);
        let target = Db::bare().await;
        restore(&target, &file, &["-e", "-s"]).expect("the schema");
        restore(&target, &file, &options).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let restored = target.connect().await;
        assert_same(&contents(&original).await, &contents(&restored).await);
        restored.batch_execute("SELECT awa.enqueue('step')").await.expect("goes on");
        std::fs::remove_file(&file).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_restored_into_a_new_extension() {
    for turned in [false, true] {
        let (source, original) = filled(turned).await;
        let file = dump(&source);
        let target = Db::embedded().await;
        restore(&target, &file, &["-e", "-a"]).expect("the data");
        let restored = target.connect().await;
        assert_same(&contents(&original).await, &contents(&restored).await);
        restored.batch_execute("SELECT awa.enqueue('step')").await.expect("goes on");
        std::fs::remove_file(&file).unwrap();
    }
}

/// The guard's hint names the way, and it works: the setting is given before the library is loaded.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_use_is_restored_over() {
    let (db, client) = filled(true).await;
    let (file, expected) = (dump(&db), contents(&client).await);
    client.batch_execute("SELECT awa.enqueue('lost', queue => 'new')").await.unwrap();
    let options = ["-e", "-c", "--if-exists"];
    let refused = restore(&db, &file, &options).expect_err("undelivered jobs");
    assert!(refused.contains("PGOPTIONS='-c awa_ingest.allow_drop=on'"), "{refused}");
    let mut allowed = db.cluster().program("pg_restore");
    allowed.env("PGOPTIONS", "-c awa_ingest.allow_drop=on");
    run(allowed.args(options).args(["-d", db.name()]).arg(&file)).expect("allowed");
    let restored = db.connect().await;
    assert_same(&expected, &contents(&restored).await);
    restored.batch_execute("SELECT awa.enqueue('step')").await.expect("goes on");
    std::fs::remove_file(&file).unwrap();
}

/// The procedure of the docs, for a database that is attached and one that is not.
#[tokio::test(flavor = "multi_thread")]
async fn data_of_an_attached_database_is_restored_into_a_fresh_one() {
    let source = Db::awa().await;
    let original = source.connect().await;
    original.batch_execute(&format!("SELECT awa_ingest.attach(); {JOBS}")).await.unwrap();
    let turn = "UPDATE awa.queue_ring_state SET current_slot = 3, generation = 19;
                UPDATE awa.queue_ring_slots SET generation = 19 WHERE slot = 3; SELECT awa.enqueue('step')";
    original.batch_execute(turn).await.unwrap();
    let empty = OPERATIONS.split("<<'SQL'\n").nth(1).and_then(|rest| rest.split("\n  SQL\n").next()).expect("the docs' SQL");
    let file = dump(&source);
    for attached in [true, false] {
        let target = Db::awa().await;
        let restored = target.connect().await;
        if attached {
            restored.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
        }
        restored.batch_execute(empty).await.expect(empty);
        restore(&target, &file, &["-e", "-1", "-a"]).expect("the data");
        for table in
            ["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims", "queue_ring_state", "queue_enqueue_heads"]
        {
            let table = Storage::Attached.table(table);
            assert_same_rows(&table, &rows(&original, &table, &[]).await, &rows(&restored, &table, &[]).await);
        }
        restored.batch_execute("SELECT awa.insert_job_compat('step'), awa.enqueue('step', queue => 'new')").await.expect("goes on");
        let worker = Worker::builder().queue("default").queue("other").queue("new").kind("step").kind("once").start(&target).await;
        worker.wait_for(5).await;
        worker.stop().await;
        restored.batch_execute("SELECT awa_ingest.attach(); SELECT awa_ingest.detach()").await.expect("awa's own function");
        assert!(rows(&restored, "awa_ingest.originals", &[]).await.is_empty(), "attached: {attached}");
        let ours = "(SELECT FROM pg_proc WHERE proname = 'insert_job_compat' AND probin LIKE '%awa_ingest%')";
        assert!(rows(&restored, ours, &[]).await.is_empty(), "attached: {attached}");
    }
    std::fs::remove_file(&file).unwrap();
}
