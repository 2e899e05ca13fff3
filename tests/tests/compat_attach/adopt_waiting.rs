//! Adoption among other sessions: all or nothing, in one transaction, with nobody's job left behind; and at length.

use std::collections::BTreeSet;

use awa_ingest_tests::{
    Cluster, Db, Storage, Template, Worker, assert_nothing_stored, backend_pid, failure, rows, wait_until_blocked, within,
};
use serde_json::json;
use tokio_postgres::Client;

use crate::adopt::{Adopted, FINALISE, adopt, assert_embedded_is_empty, claims, in_order_of_ids, kept, try_adopt};
use crate::setup::{assert_lanes_are_whole, numbers, ready_args, run};

async fn enqueue(client: &Client, number: i64) {
    let sql = "SELECT awa.enqueue('step', $1, uniqueness => 'true')";
    client.query_one(sql, &[&json!(number)]).await.expect(sql);
}

async fn awa_comes(db: &Db) {
    db.migrate_awa().await;
    run(&db.connect().await, FINALISE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_takes_everything_back() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    run(&client, "SELECT awa.enqueue('step', to_jsonb(n), uniqueness => 'true', run_at => CASE WHEN n % 4 = 0 THEN '2041-01-01'::timestamptz END) FROM generate_series(1, 20) AS n").await;
    awa_comes(&db).await;
    let before =
        (kept(&client, "awa_ingest").await, in_order_of_ids(&client, "awa_ingest").await, claims(&client, "awa_ingest").await);
    for undo in ["ROLLBACK", "ROLLBACK TO s; COMMIT"] {
        run(&client, "BEGIN; SAVEPOINT s").await;
        assert_eq!(adopt(&client, "error").await, Adopted { ready: 15, deferred: 5, skipped: 0 });
        assert_embedded_is_empty(&client, undo).await;
        assert_eq!(kept(&db.connect().await, "awa_ingest").await.len(), 20, "others still see it there");
        run(&client, undo).await;
        let after =
            (kept(&client, "awa_ingest").await, in_order_of_ids(&client, "awa_ingest").await, claims(&client, "awa_ingest").await);
        assert_eq!(after, before, "{undo}");
        assert!(rows(&client, "awa.jobs", &[]).await.is_empty(), "{undo}");
    }
    adopt(&client, "error").await;
    assert_eq!(kept(&client, "awa").await, before.0);
}

/// A producer that was under way when awa came is waited for. Its jobs would stay behind, so that it cannot commit. A transaction that
/// was prepared before can, and its jobs come along: deferred ones, since no transaction that notifies can be prepared.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_enqueue_is_waited_for() {
    let cluster = Cluster::start(&[("max_prepared_transactions", "5")]);
    for (end, deferred) in [("COMMIT", false), ("ROLLBACK", false), ("COMMIT", true), ("COMMIT PREPARED 'one'", true)] {
        let db = Db::on(cluster.clone(), Template::Embedded).await;
        let (producer, adopter) = (db.connect().await, db.connect().await);
        enqueue(&producer, 1).await;
        run(&producer, "BEGIN").await;
        if deferred {
            run(&producer, "SELECT awa.enqueue('step', '2', run_at => now())").await;
        } else {
            enqueue(&producer, 2).await;
        }
        if end.contains("PREPARED") {
            run(&producer, "PREPARE TRANSACTION 'one'").await;
        }
        awa_comes(&db).await;
        let pid = backend_pid(&adopter).await;
        let waiting = tokio::spawn(async move { (try_adopt(&adopter, "error").await, adopter) });
        wait_until_blocked(&db.connect().await, pid).await;
        match end {
            "COMMIT" => assert_eq!(failure(producer.batch_execute(end).await).sqlstate, "40001", "{deferred}"),
            _ => run(&producer, end).await,
        }
        let (adopted, adopter) = within("adopt", waiting).await.unwrap();
        let come = i64::from(end.contains("PREPARED"));
        assert_eq!(adopted.expect("adopt"), Adopted { ready: 1, deferred: come, skipped: 0 }, "{end}, {deferred}");
        assert_embedded_is_empty(&adopter, end).await;
        assert_eq!(in_order_of_ids(&adopter, "awa").await, numbers(1, 1 + come), "{end}, {deferred}");
    }
}

/// The second one waits for the first, and adopts what that one did not.
#[tokio::test(flavor = "multi_thread")]
async fn two_adoptions_at_once() {
    for (end, left) in [("COMMIT", 0), ("ROLLBACK", 10)] {
        let db = Db::embedded().await;
        let (a, b, other) = (db.connect().await, db.connect().await, db.connect().await);
        for number in 1..=10 {
            enqueue(&a, number).await;
        }
        awa_comes(&db).await;
        run(&a, "BEGIN").await;
        assert_eq!(adopt(&a, "error").await.ready, 10);
        let pid = backend_pid(&b).await;
        let waiting = tokio::spawn(async move { try_adopt(&b, "error").await });
        wait_until_blocked(&other, pid).await;
        run(&a, end).await;
        let second = within("the second", waiting).await.unwrap().expect("adopt");
        assert_eq!(second, Adopted { ready: left, ..Default::default() }, "{end}");
        assert_eq!(ready_args(&a).await, numbers(1, 10), "{end}");
        assert_lanes_are_whole(&a, "awa", end).await;
    }
}

/// Producers that go on all the time, first into the embedded storage, then into awa's: none of their jobs is lost or doubled.
#[tokio::test(flavor = "multi_thread")]
async fn producers_go_on_meanwhile() {
    let db = Db::embedded().await;
    let mut producers = Vec::new();
    for producer in 0..3i64 {
        let client = db.connect().await;
        producers.push(tokio::spawn(async move {
            for number in 0..150 {
                let sql = "SELECT awa.enqueue('step', $1, queue => $2)";
                // While awa's engine is canonical or its tables appear, either answer is right, but a refused job is sent again.
                while client.query_one(sql, &[&json!(producer * 1000 + number), &format!("q{}", number % 2)]).await.is_err() {}
            }
        }));
    }
    awa_comes(&db).await;
    let client = db.connect().await;
    adopt(&client, "error").await;
    for producer in producers {
        within("a producer", producer).await.unwrap();
    }
    adopt(&client, "error").await;
    assert_embedded_is_empty(&client, "at the end").await;
    assert_lanes_are_whole(&client, "awa", "at the end").await;
    let all: i64 = client.query_one("SELECT count(DISTINCT args) FROM awa.jobs", &[]).await.unwrap().get(0);
    let rows: i64 = client.query_one("SELECT count(*) FROM awa.jobs", &[]).await.unwrap().get(0);
    assert_eq!((all, rows), (450, 450));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_extension_may_go_afterwards() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    enqueue(&client, 1).await;
    awa_comes(&db).await;
    assert_eq!(failure(client.batch_execute("DROP EXTENSION awa_ingest").await).sqlstate, "2BP01", "a job waits");
    adopt(&client, "error").await;
    run(&client, "DROP EXTENSION awa_ingest").await;
    let worker = Worker::builder().queue("default").kind("step").start(&db).await;
    worker.wait_for(1).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_adopted_is_refused() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    enqueue(&client, 1).await;
    for policy in ["error", "skip"] {
        let refused = failure(try_adopt(&client, policy).await);
        assert_eq!(refused.sqlstate, "55000", "without awa: {refused:?}");
        assert!(!refused.hint.is_empty(), "{refused:?}");
    }
    awa_comes(&db).await;
    for policy in ["'replace'", "''", "'SKIP'"] {
        let answer = client.batch_execute(&format!("SELECT awa_ingest.adopt({policy})")).await;
        assert!(answer.is_err(), "{policy} is no policy");
        let refused = failure(answer);
        assert_eq!(refused.sqlstate, "22023", "{policy}: {refused:?}");
    }
    run(&client, "INSERT INTO awa.schema_version (version, description) VALUES (43, 'newer')").await;
    assert_eq!(failure(try_adopt(&client, "error").await).sqlstate, "55000", "a newer awa");
    assert_eq!(kept(&client, "awa_ingest").await.len(), 1);
    run(&client, "DELETE FROM awa.schema_version WHERE version = 43").await;
    assert_eq!(adopt(&client, "error").await.ready, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_woken() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    run(&client, "SELECT awa.enqueue('step', queue => q) FROM unnest(ARRAY['a', 'b', 'a']) AS q; SELECT awa.enqueue('step', queue => 'later', run_at => '2041-01-01')").await;
    awa_comes(&db).await;
    let (listener, mut notifications) = db.listen("awa:a").await;
    run(&listener, "LISTEN \"awa:b\"; LISTEN \"awa:later\"").await;
    adopt(&client, "error").await;
    let mut heard = BTreeSet::new();
    while heard.len() < 2 {
        heard.insert(notifications.next().await.channel().to_owned());
    }
    run(&listener, "SELECT 1").await;
    assert!(notifications.arrived().is_empty(), "each once, and nobody for what is not due");
    assert_eq!(heard, BTreeSet::from(["awa:a".to_owned(), "awa:b".to_owned()]));
}

const JOBS: i64 = 100_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_jobs_in_little_memory() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let fill = format!(
        "SELECT count(*) FROM awa.enqueue_columns(
            (SELECT array_agg('step'::text) FROM generate_series(1, {JOBS})),
            (SELECT array_agg(to_jsonb(n) ORDER BY n) FROM generate_series(1, {JOBS}) AS n),
            queue => (SELECT array_agg('q' || n % 3 ORDER BY n) FROM generate_series(1, {JOBS}) AS n),
            run_at => (SELECT array_agg(CASE WHEN n % 10 = 0 THEN '2041-01-01'::timestamptz + n * interval '1 us' END ORDER BY n) FROM generate_series(1, {JOBS}) AS n),
            unique_key => (SELECT array_agg(CASE WHEN n % 7 = 0 THEN sha256(int4send(n)) END ORDER BY n) FROM generate_series(1, {JOBS}) AS n),
            unique_states => (SELECT array_agg(CASE WHEN n % 7 = 0 THEN '11111111' END ORDER BY n) FROM generate_series(1, {JOBS}) AS n))"
    );
    run(&client, &fill).await;
    awa_comes(&db).await;
    let digest = |schema: &'static str| {
        let client = &client;
        async move {
            let sql = format!(
                "SELECT md5(string_agg(job::text, ',' ORDER BY job_id)) FROM (
                     SELECT job_id, (args, queue, priority, run_at, unique_key, 'ready') AS job FROM {schema}.ready_entries
                     UNION ALL SELECT job_id, (args, queue, priority, run_at, unique_key, state::text) FROM {schema}.deferred_jobs) AS jobs"
            );
            client.query_one(&sql, &[]).await.expect(&sql).get::<_, String>(0)
        }
    };
    let lanes = |schema: &'static str| {
        let client = &client;
        async move {
            let sql = format!(
                "(SELECT queue, priority, enqueue_shard, md5(string_agg(args::text, ',' ORDER BY lane_seq)) FROM {schema}.ready_entries GROUP BY 1, 2, 3)"
            );
            rows(client, &sql, &[]).await
        }
    };
    let (jobs, order) = (digest("awa_ingest").await, lanes("awa_ingest").await);
    run(&client, "SET awa_ingest.batch_memory = '1MB'").await;
    let memory = "SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts";
    let before: i64 = client.query_one(memory, &[]).await.unwrap().get(0);
    assert_eq!(adopt(&client, "skip").await, Adopted { ready: JOBS * 9 / 10, deferred: JOBS / 10, skipped: 0 });
    let after: i64 = client.query_one(memory, &[]).await.unwrap().get(0);
    assert!(after < before + (8 << 20), "nothing is kept: {before}, {after}");
    assert_eq!((digest("awa").await, lanes("awa").await), (jobs, order));
    let held: i64 =
        client.query_one("SELECT count(*) FROM awa.job_unique_claims JOIN awa.jobs ON id = job_id", &[]).await.unwrap().get(0);
    assert_eq!(held, JOBS / 7);
    assert_embedded_is_empty(&client, "adopted").await;
    assert_lanes_are_whole(&client, "awa", "adopted").await;
}

/// An empty storage has nothing to adopt, and an awa that was always there has nothing to do with it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_adopt() {
    let client = Db::awa().await.connect().await;
    run(&client, "SELECT awa.enqueue('mine')").await;
    for policy in ["error", "skip"] {
        assert_eq!(adopt(&client, policy).await, Adopted::default());
    }
    assert_eq!(rows(&client, "awa.jobs", &[]).await.len(), 1);
    assert_nothing_stored(&client, Storage::Embedded, "nothing to adopt").await;
}
