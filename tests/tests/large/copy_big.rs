//! A COPY of five million jobs: bounded memory, temporary files meanwhile and none afterwards, and every job in its place.

use std::fs;

use awa_ingest_tests::copy::{Summary, last_summary};
use awa_ingest_tests::{Cluster, Db, Session, Template, rows};
use bytes::Bytes;
use serde_json::json;
use tokio_postgres::Client;

const JOBS: usize = 5_000_000;
const CHUNK: usize = 50_000;

const MIB: i64 = 1024 * 1024;
const BATCH_MEMORY: i64 = 16 * MIB;
/// Beyond batch memory, whatever the number of jobs: what the server's own statements and the allocator need.
const CONSTANT: i64 = 8 * MIB;

/// The most memory that a backend ever had, in bytes. Shared memory counts as soon as it is touched: the pool is small here.
fn peak(pid: i32) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the backend's status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a high-water mark");
    let kilobytes: i64 = line.trim().trim_end_matches(" kB").parse().expect("kilobytes");
    kilobytes * 1024
}

/// A session that has loaded the extension and planned its statements.
async fn warm_session(db: &Db) -> Session {
    let session = Session::open(db).await;
    session.client.batch_execute("INSERT INTO steps SELECT '0' FROM generate_series(1, 10)").await.expect("warming up");
    session.client.batch_execute(&format!("SET awa_ingest.batch_memory = '{}kB'", BATCH_MEMORY / 1024)).await.expect("SET");
    session
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn five_million_jobs() {
    let cluster = Cluster::start(&[("shared_buffers", "8MB"), ("work_mem", "4MB"), ("max_wal_size", "8GB"), ("autovacuum", "off")]);
    let db = Db::on(cluster.clone(), Template::Embedded).await;
    let observer = db.connect().await;
    observer.batch_execute("CREATE FOREIGN TABLE steps (args jsonb) SERVER awa_ingest OPTIONS (kind 'step')").await.unwrap();
    let session = warm_session(&db).await;
    let before = peak(session.pid);

    let mut copy = session.copy("COPY steps FROM STDIN").await;
    let lines = Bytes::from("1\n".repeat(CHUNK));
    for _ in 0..JOBS / CHUNK {
        copy.send(lines.clone()).await.expect("sending");
    }
    copy.wait_until_taken(&observer).await;
    copy.wait_until_spilled(&observer).await;
    let spilled = number(&observer, "SELECT sum(size)::bigint FROM pg_ls_tmpdir()").await;
    assert!(spilled > JOBS as i64 * 50, "{spilled} bytes of temporary files");
    assert_eq!(copy.finish().await.expect("COPY"), JOBS as u64);

    let taken = peak(session.pid) - before;
    assert!(taken <= BATCH_MEMORY + CONSTANT, "{} MiB", taken / MIB);
    Session::assert_no_temporary_files(session.pid, &observer, "afterwards").await;
    let warmed_up = number(&observer, "SELECT count(*) FROM awa_ingest.ready_entries WHERE args = '0'").await;
    let first = number(&observer, "SELECT min(job_id) FROM awa_ingest.ready_entries WHERE args = '1'").await;
    let ids = format!("{{[{first},{})}}", first + JOBS as i64);
    let expected = Summary { rows: JOBS as i64, enqueued: JOBS as i64, skipped: 0, deferred: 0, lanes: 1, job_ids: Some(ids) };
    assert_eq!(last_summary(&session.client).await, Some(expected));
    // Ids and positions go up together, without a gap.
    let shape =
        format!("SELECT count(*) FROM awa_ingest.ready_entries WHERE lane_seq - {warmed_up} = job_id - {first} + 1 AND args = '1'");
    assert_eq!(number(&observer, &shape).await, JOBS as i64);
    let segments = "(SELECT first_lane_seq AS first, next_lane_seq AS next FROM awa_ingest.ready_segments)";
    let expected = [json!({"first": 1, "next": 11}), json!({"first": 11, "next": JOBS + 11})];
    assert_eq!(rows(&observer, segments, &[]).await, expected);
}
