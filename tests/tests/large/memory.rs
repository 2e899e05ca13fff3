//! A batch of any size needs the memory of its argument, `awa_ingest.batch_memory`, and a constant.

use std::fs;
use std::sync::Arc;

use awa_ingest_tests::{Cluster, Db, Template, backend_pid, rows, wait_until};
use tokio_postgres::Client;

const MIB: i64 = 1024 * 1024;
/// What the calls below are allowed.
const BATCH_MEMORY: i64 = 16 * MIB;
/// What the server itself takes for the result rows, and again for each of the sorts below, before it uses temporary files.
const WORK_MEM: i64 = 4 * MIB;
/// Beyond batch memory, whatever the size of the batch: the result rows, and what the allocator does not give back in between.
const CONSTANT: i64 = WORK_MEM + 4 * MIB;
/// A batch with keys sorts them to claim them, and sorts those that were taken to report them and to leave them out.
const SORTS: i64 = 3 * WORK_MEM;

/// Shared memory counts as soon as it is touched: a small pool keeps it out of the picture.
async fn database() -> (Arc<Cluster>, Db) {
    let cluster = Cluster::start(&[("shared_buffers", "8MB"), ("work_mem", "4MB")]);
    let db = Db::on(cluster.clone(), Template::Embedded).await;
    (cluster, db)
}

/// Stores an array of `count` jobs, uncompressed; `job` is an SQL expression over `n`.
async fn prepare(db: &Db, name: &str, count: i32, job: &str) {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS source (name text, jobs jsonb); ALTER TABLE source ALTER jobs SET STORAGE external;
         INSERT INTO source SELECT '{name}', jsonb_agg({job}) FROM generate_series(1, {count}) AS n"
    );
    db.connect().await.batch_execute(&sql).await.expect(&sql);
}

/// The most memory that the backend behind `client` ever had, in bytes.
async fn peak(client: &Client) -> i64 {
    let status = fs::read_to_string(format!("/proc/{}/status", backend_pid(client).await)).expect("the backend's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a high-water mark");
    let kilobytes: i64 = line.trim().trim_end_matches(" kB").parse().expect("kilobytes");
    kilobytes * 1024
}

/// A new connection that has loaded the extension and planned its statements.
async fn warm_connection(db: &Db) -> Client {
    let client = db.connect().await;
    let sql = r#"SELECT count(*) FROM awa.enqueue_batch('[{"kind": "k", "unique": true}, {"kind": "k", "run_at": "2030-01-01"}]', 'skip')"#;
    client.batch_execute(sql).await.expect(sql);
    client.batch_execute(&format!("SET awa_ingest.batch_memory = '{}kB'", BATCH_MEMORY / 1024)).await.unwrap();
    client
}

/// Memory of a call for the array `name` beyond that of a call that only looks at it.
async fn overhead(db: &Db, name: &str, expected: i64) -> i64 {
    let baseline = warm_connection(db).await;
    let look = "SELECT jsonb_array_length(jobs)::bigint FROM source WHERE name = $1";
    assert!(baseline.query_one(look, &[&name]).await.unwrap().get::<_, i64>(0) >= expected);
    let client = warm_connection(db).await;
    let call = "SELECT count(e.job_id) FROM source, awa.enqueue_batch(jobs, 'skip') AS e WHERE name = $1";
    assert_eq!(client.query_one(call, &[&name]).await.unwrap().get::<_, i64>(0), expected);
    peak(&client).await - peak(&baseline).await
}

async fn assert_bounded(db: &Db, name: &str, enqueued: i64, limit: i64) {
    let overhead = overhead(db, name, enqueued).await;
    assert!(overhead <= limit, "{name}: {} MiB beyond the argument", overhead / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_jobs_stay_within_batch_memory() {
    let (_cluster, db) = database().await;
    prepare(&db, "plain", 1_000_000, r#"'{"kind": "step"}'::jsonb"#).await;
    assert_bounded(&db, "plain", 1_000_000, BATCH_MEMORY + CONSTANT).await;
    let client = db.connect().await;
    let shape = "SELECT count(*) = 1000001 AND count(DISTINCT lane_seq) = 1000001 FROM awa_ingest.ready_entries";
    // The warm-up enqueued one ready job, and was skipped afterwards.
    let whole: bool = client.query_one(shape, &[]).await.unwrap().get(0);
    assert!(whole);
    assert_eq!(rows(&client, "awa_ingest.ready_segments", &[]).await.len(), 2);
}

/// The cases that keep more than the jobs: segments, where each job has a time of its own, and keys.
#[tokio::test(flavor = "multi_thread")]
async fn segments_and_keys_are_within_it() {
    let (_cluster, db) = database().await;
    let at = "to_jsonb('2030-01-01'::timestamptz + n * interval '1 second')";
    prepare(&db, "timed", 200_000, &format!(r#"'{{"kind": "step", "state": "available"}}' || jsonb_build_object('run_at', {at})"#))
        .await;
    prepare(&db, "unique", 200_000, r#"'{"kind": "step", "unique": true}' || jsonb_build_object('args', n / 2)"#).await;
    assert_bounded(&db, "unique", 100_001, BATCH_MEMORY + CONSTANT + SORTS).await;
    assert_bounded(&db, "timed", 200_000, BATCH_MEMORY + CONSTANT).await;
}

/// Skipped jobs make the call spool twice, and a conflict ends it half-way: nothing may be left either way.
#[tokio::test(flavor = "multi_thread")]
async fn spilling_leaves_no_temporary_files() {
    let (cluster, db) = database().await;
    prepare(&db, "half", 5000, r#"'{"kind": "step", "unique": true}' || jsonb_build_object('args', n / 2)"#).await;
    let client = db.connect().await;
    client.batch_execute("SET awa_ingest.batch_memory = '64kB'; SET work_mem = '64kB'").await.unwrap();
    let calls = [
        ("SELECT count(e.ord) FROM source, awa.enqueue_batch(jobs, 'skip') AS e", true),
        ("SELECT count(e.ord) FROM source, awa.enqueue_batch(jobs, 'error') AS e", false),
        ("SELECT e.ord FROM source, awa.enqueue_batch(jobs, 'skip') AS e LIMIT 1", true),
        ("BEGIN; DECLARE c CURSOR FOR SELECT * FROM source, awa.enqueue_batch(jobs, 'skip'); FETCH 10 FROM c; COMMIT", true),
        ("BEGIN; SAVEPOINT s; SELECT count(e.ord) FROM source, awa.enqueue_batch(jobs, 'skip') AS e; ROLLBACK TO s; COMMIT", true),
    ];
    let spilled = "SELECT coalesce(sum(temp_bytes), 0)::bigint FROM pg_stat_database WHERE datname = current_database()";
    for (call, good) in calls {
        assert_eq!(client.batch_execute(call).await.is_ok(), good, "{call}");
    }
    let observer = db.connect().await;
    assert_eq!(rows(&observer, "(SELECT FROM pg_ls_tmpdir())", &[]).await.len(), 0);
    drop(client);
    wait_until(&observer, &format!("SELECT ({spilled}) > 1000000")).await;
    let complaints: Vec<String> = cluster.log().lines().filter(|line| line.contains("leak")).map(str::to_owned).collect();
    assert_eq!(complaints, Vec::<String>::new(), "the server found files that nobody had closed");
}

/// The text that a unique key is a hash of is never there as a whole, nor is a list of what is in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_unique_key_of_large_args_needs_no_memory_of_their_size() {
    let (_cluster, db) = database().await;
    let source = "CREATE TABLE source (args jsonb); ALTER TABLE source ALTER args SET STORAGE external;
        INSERT INTO source SELECT jsonb_agg(n % 10) FROM generate_series(1, 3000000) AS n";
    db.connect().await.batch_execute(source).await.unwrap();
    let mut peaks = Vec::new();
    for uniqueness in ["false", "true"] {
        let client = warm_connection(&db).await;
        let call = format!("SELECT awa.enqueue('k', args, uniqueness => '{uniqueness}') FROM source");
        client.batch_execute(&call).await.expect(&call);
        peaks.push(peak(&client).await);
    }
    let size: i64 = db.connect().await.query_one("SELECT pg_column_size(args)::bigint FROM source", &[]).await.unwrap().get(0);
    assert!(size > 30 * MIB && peaks[1] - peaks[0] < 8 * MIB, "{} MiB for {} MiB", (peaks[1] - peaks[0]) / MIB, size / MIB);
}

/// Args that are stored out of line or compressed are read one job's at a time.
#[tokio::test(flavor = "multi_thread")]
async fn adopting_large_jobs_stays_within_batch_memory() {
    let (_cluster, db) = database().await;
    let client = db.connect().await;
    let fill = "INSERT INTO awa.ingest (kind, args) SELECT 'k', to_jsonb(repeat('x', 20000)) FROM generate_series(1, 5000)";
    client.batch_execute(fill).await.expect(fill);
    db.migrate_awa().await;
    client.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
    let mut peaks = Vec::new();
    for expected in [5000, 0] {
        let client = db.connect().await;
        client.batch_execute(&format!("SET awa_ingest.batch_memory = '{}kB'", BATCH_MEMORY / 1024)).await.unwrap();
        let ready: i64 = client.query_one("SELECT ready FROM awa_ingest.adopt()", &[]).await.expect("adopt").get(0);
        assert_eq!(ready, expected);
        peaks.push(peak(&client).await);
    }
    let overhead = peaks[0] - peaks[1];
    assert!(overhead < BATCH_MEMORY + CONSTANT + WORK_MEM, "{} MiB for 95 MiB of args", overhead / MIB);
}
