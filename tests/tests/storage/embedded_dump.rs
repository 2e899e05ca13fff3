//! An embedded storage survives `pg_dump`: jobs, claims, lanes, sequences, the ring's position, and the producers' privileges.

use std::io::Write;
use std::process::{Command, Stdio};

use awa_ingest_tests::{Db, assert_same_rows, jobs, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// A way from one database into another.
#[derive(Clone, Copy, Debug)]
enum Route {
    /// SQL text, read by `psql`.
    Plain,
    /// The custom format, restored in one transaction.
    Custom,
    /// The custom format, restored over two connections: tables arrive in any order.
    Parallel,
}

const ROUTES: [Route; 3] = [Route::Plain, Route::Custom, Route::Parallel];

/// Dumps `from` into `to`, where everything must arrive without an error.
fn copy(from: &Db, to: &Db, route: Route) {
    let format = if matches!(route, Route::Plain) { "--format=plain" } else { "--format=custom" };
    let dump = from.cluster().program("pg_dump").args([format, from.name()]).output().expect("running pg_dump");
    assert!(dump.status.success(), "pg_dump: {}", String::from_utf8_lossy(&dump.stderr));

    match route {
        Route::Plain => feed(to.cluster().program("psql").args(["-qX", "-v", "ON_ERROR_STOP=1", "-d", to.name()]), &dump.stdout),
        Route::Custom => feed(to.cluster().program("pg_restore").args(["-e", "-1", "-d", to.name()]), &dump.stdout),
        Route::Parallel => {
            // Workers seek in the file, so that it has to be one.
            let file = std::env::temp_dir().join(format!("awa_ingest-{}-{}.dump", std::process::id(), to.name()));
            std::fs::write(&file, &dump.stdout).expect("writing the dump");
            feed(to.cluster().program("pg_restore").args(["-e", "-j", "2", "-d", to.name()]).arg(&file), &[]);
            std::fs::remove_file(&file).expect("removing the dump");
        }
    }
}

/// Runs `command` with `input`, and fails the test if it fails.
fn feed(command: &mut Command, input: &[u8]) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starting a restore");
    child.stdin.take().expect("a pipe").write_all(input).expect("feeding the restore");
    let output = child.wait_with_output().expect("waiting for the restore");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Everything that the storage consists of, as parenthesised queries where a table is not enough.
const CONTENTS: [&str; 11] = [
    "awa_ingest.ready_entries",
    "awa_ingest.ready_segments",
    "awa_ingest.deferred_jobs",
    "awa_ingest.job_unique_claims",
    "awa_ingest.queue_meta",
    "awa_ingest.queue_lanes",
    "awa_ingest.queue_enqueue_heads",
    "awa_ingest.queue_claim_heads",
    "awa_ingest.queue_ring_state",
    "(SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'awa_ingest')",
    "(SELECT tableoid::regclass::text AS partition, job_id FROM awa_ingest.ready_entries)",
];
const TIMES: [&str; 3] = ["created_at", "run_at", "first_run_at"];

async fn assert_same_storage(source: &Client, restored: &Client, but: &[&str]) {
    for content in CONTENTS {
        let expected = rows(source, content, but).await;
        assert_same_rows(content, &expected, &rows(restored, content, but).await);
    }
}

const ODD_QUEUE: &str = "odd \"queue\".with 'quotes', ünïcode\\ and\ttab";

/// Jobs of every sort: lanes with and without shards, odd names, deferred, unique, and everything a job can carry.
fn some_jobs(round: i32) -> Value {
    json!([
        {"kind": "plain"},
        {"kind": "rich", "args": {"round": round, "text": "\\N\t\n\"é"}, "priority": 4, "max_attempts": 1000,
         "metadata": {"a": [1, null]}, "tags": ["one", "two"]},
        {"kind": "odd", "queue": ODD_QUEUE},
        {"kind": "sharded", "queue": "sharded", "ordering_key": format!("key {round}")},
        {"kind": "sharded", "queue": "sharded", "ordering_key": "\\x00ff"},
        {"kind": "once", "args": round, "unique": true},
        {"kind": "later", "args": round, "unique": true, "run_at": "2031-02-03 04:05:06.789"},
        {"kind": "again", "state": "retryable", "run_at": "infinity"},
        {"kind": "timed", "state": "available", "run_at": "2001-01-01"},
    ])
}

async fn enqueue(client: &Client, batch: &Value) -> Vec<(Option<i64>, Option<i64>)> {
    let sql = "SELECT job_id, conflicts_with FROM awa.enqueue_batch($1::jsonb, 'skip')";
    let answer = client.query(sql, &[batch]).await.expect(sql);
    answer.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Jobs in three ring slots, one of them reached by going around.
async fn fill(client: &Client) {
    client.batch_execute("INSERT INTO awa_ingest.queue_meta VALUES ('sharded', 7)").await.expect("shards");
    for (round, (slot, generation)) in [(0, 0), (15, 15), (3, 19)].into_iter().enumerate() {
        let turn = format!("UPDATE awa_ingest.queue_ring_state SET current_slot = {slot}, generation = {generation}");
        client.batch_execute(&turn).await.expect(&turn);
        enqueue(client, &some_jobs(round as i32)).await;
    }
    let slots = "(SELECT DISTINCT ready_slot FROM awa_ingest.ready_entries)";
    assert_eq!(rows(client, slots, &[]).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_storage_is_the_same_and_goes_on_where_the_dump_was_taken() {
    let source = Db::embedded().await;
    let original = source.connect().await;
    fill(&original).await;
    let mut copies = Vec::new();
    for route in ROUTES {
        let target = Db::bare().await;
        copy(&source, &target, route);
        let restored = target.connect().await;
        assert_same_storage(&original, &restored, &[]).await;
        copies.push(restored);
    }

    // Old lanes, a new one, keys taken before the dump, and new keys: ids and positions go on as in the original.
    let mut more = some_jobs(2);
    let new_lane = json!({"kind": "plain", "queue": "new since the dump", "priority": 3});
    more.as_array_mut().expect("an array").extend([new_lane, json!({"kind": "once", "args": 99, "unique": true})]);
    let expected = enqueue(&original, &more).await;
    assert!(expected[5].1.is_some() && expected[6].1.is_some() && expected[10].0.is_some(), "{expected:?}");
    for restored in &copies {
        assert_eq!(enqueue(restored, &more).await, expected);
        assert_same_storage(&original, restored, &TIMES).await;
        let positions =
            "(SELECT FROM awa_ingest.ready_entries GROUP BY queue, priority, enqueue_shard, lane_seq HAVING count(*) > 1)";
        assert!(rows(restored, positions, &[]).await.is_empty(), "positions are given once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_storage_is_restored_and_takes_jobs() {
    let source = Db::embedded().await;
    for route in ROUTES {
        let target = Db::bare().await;
        copy(&source, &target, route);
        let (original, restored) = (source.connect().await, target.connect().await);
        assert_same_storage(&original, &restored, &[]).await;
        assert_eq!(rows(&restored, "awa_ingest.queue_ring_state", &[]).await.len(), 1);
        let answer = enqueue(&restored, &some_jobs(1)).await;
        assert_eq!(answer.iter().map(|(id, _)| id.expect("enqueued")).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_copy_is_the_same() {
    let source = Db::embedded().await;
    fill(&source.connect().await).await;
    let (first, second) = (Db::bare().await, Db::bare().await);
    copy(&source, &first, Route::Plain);
    enqueue(&first.connect().await, &some_jobs(7)).await;
    copy(&first, &second, Route::Custom);
    assert_same_storage(&first.connect().await, &second.connect().await, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_keep_their_privileges() {
    let source = Db::embedded().await;
    let producer = source.role("producer").await;
    let owner = source.connect().await;
    owner.execute("SELECT awa_ingest.grant_producer($1)", &[&producer]).await.unwrap();
    enqueue(&source.connect_as(&producer).await, &some_jobs(1)).await;

    for route in ROUTES {
        let target = Db::bare().await;
        copy(&source, &target, route);
        let restored = target.connect_as(&producer).await;
        assert_eq!(jobs::enqueue(&restored, &jobs::job("old lane", json!({}))).await, 10, "{route:?}");
        enqueue(&restored, &json!([{"kind": "k", "queue": "new lane"}])).await;
    }
}

/// The lane sequences come back as the storage's own, not as strangers in its schema.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_storage_goes_with_its_extension() {
    let source = Db::embedded().await;
    fill(&source.connect().await).await;
    for route in ROUTES {
        let target = Db::bare().await;
        copy(&source, &target, route);
        let restored = target.connect().await;
        restored.batch_execute("SET awa_ingest.allow_drop = on; DROP EXTENSION awa_ingest").await.expect("no CASCADE needed");
    }
}

/// An awa database with the extension attached is dumped whole, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_attached_database_is_restored() {
    let source = Db::awa().await;
    let original = source.connect().await;
    // Times that awa's workers can read.
    let mut batch = some_jobs(1);
    batch[7]["run_at"] = json!("9999-01-01");
    batch[8]["run_at"] = json!(chrono::Utc::now().to_rfc3339());
    enqueue(&original, &batch).await;
    for route in ROUTES {
        let target = Db::bare().await;
        copy(&source, &target, route);
        let restored = target.connect().await;
        for table in ["awa.ready_entries", "awa.ready_segments", "awa.deferred_jobs", "awa.job_unique_claims"] {
            assert_same_rows(table, &rows(&original, table, &[]).await, &rows(&restored, table, &[]).await);
        }
        let answer = enqueue(&restored, &batch).await;
        assert!(answer[5].1.is_some() && answer[0].0 == Some(10), "{route:?}: {answer:?}");
    }
}
