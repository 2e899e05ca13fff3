//! A call that is cancelled while it makes a lane leaves no lock behind: awa's functions take some of the session, and release them where they
//! fail, but not where they are cancelled.

use awa_ingest_tests::{Db, Session, failure, rows, wait_until, wait_until_blocked, within};
use tokio_postgres::Client;

/// Ways to enqueue into queue `new`.
const WAYS: [&str; 4] = [
    "SELECT awa.enqueue('step', queue => 'new')",
    "SELECT awa.enqueue_batch('[{\"kind\": \"step\", \"queue\": \"new\"}]')",
    "INSERT INTO awa.ingest (kind, queue) VALUES ('step', 'new')",
    "SELECT awa.insert_job_compat('step', 'new')",
];

/// An awa database whose sequence of lane `new` on a side exists without the lane, and where awa's function is replaced.
async fn database(side: &str) -> (Db, Client, String) {
    let db = Db::awa().await;
    let client = db.connect().await;
    let sequence = format!("CREATE SEQUENCE awa.queue_{side}_seq_%s AS bigint START WITH 1 MINVALUE 1 CACHE 1");
    let setup = format!("SELECT awa_ingest.attach(); DO $$ BEGIN EXECUTE format('{sequence}', md5('new:2:0')); END $$");
    client.batch_execute(&setup).await.expect(&setup);
    let name: String = client.query_one("SELECT 'awa.queue_' || $1 || '_seq_' || md5('new:2:0')", &[&side]).await.unwrap().get(0);
    (db, client, name)
}

/// Advisory locks of a session that is idle.
fn locks(pid: i32) -> String {
    format!("(SELECT classid, objid, mode FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory')")
}

async fn assert_another_goes_on(db: &Db, way: &str) {
    let other = db.connect().await;
    within(way, other.batch_execute("SET statement_timeout = '20s'; SELECT awa.enqueue('step', queue => 'new')"))
        .await
        .unwrap_or_else(|error| panic!("behind {way}: {error:?}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_left_by_a_cancelled_call() {
    for side in ["enqueue", "claim"] {
        for way in WAYS {
            let (db, observer, sequence) = database(side).await;
            let holder = db.connect().await;
            // awa's function has locked the sequence's name when it comes to the sequence.
            holder.batch_execute(&format!("BEGIN; ALTER SEQUENCE {sequence} RESTART")).await.unwrap();
            let session = Session::open(&db).await;
            let pid = session.pid;
            let call = tokio::spawn(async move {
                let result = session.client.batch_execute(way).await;
                (session, result)
            });
            let waits_there = format!(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted AND relation = '{sequence}'::regclass)"
            );
            wait_until(&observer, &waits_there).await;
            observer.execute("SELECT pg_cancel_backend($1)", &[&pid]).await.unwrap();
            let (session, result) = within(way, call).await.expect("the call's task");
            assert_eq!(failure(result).sqlstate, "57014", "{side}: {way}");
            // The error arrives before the transaction's end.
            session.client.batch_execute("SELECT 1").await.unwrap();
            assert!(rows(&observer, &locks(pid), &[]).await.is_empty(), "{side}: {way}");
            holder.batch_execute("ROLLBACK").await.unwrap();
            assert_another_goes_on(&db, way).await;
            session.client.batch_execute(way).await.expect("the session goes on, too");
        }
    }
}

/// A lock that the session itself took on the name stays its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_own_lock_stays() {
    let (db, observer, sequence) = database("enqueue").await;
    let holder = db.connect().await;
    holder.batch_execute(&format!("BEGIN; ALTER SEQUENCE {sequence} RESTART")).await.unwrap();
    let session = Session::open(&db).await;
    let pid = session.pid;
    session.client.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", &[&sequence]).await.unwrap();
    let call = tokio::spawn(async move {
        let result = session.client.batch_execute(WAYS[0]).await;
        (session, result)
    });
    wait_until_blocked(&observer, pid).await;
    observer.execute("SELECT pg_cancel_backend($1)", &[&pid]).await.unwrap();
    let (session, result) = within("the call", call).await.expect("the call's task");
    assert_eq!(failure(result).sqlstate, "57014");
    session.client.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(rows(&observer, &locks(pid), &[]).await.len(), 1);
    session.client.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    assert!(rows(&observer, &locks(pid), &[]).await.is_empty());
}

/// The same at whatever moment the timeout strikes.
#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_left_by_many_timeouts() {
    let db = Db::awa().await;
    let observer = db.connect().await;
    observer.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
    let session = Session::open(&db).await;
    for round in 0..150 {
        let queue = format!("q{round}");
        let timeout = 1 + round % 12;
        let call = match round % 2 {
            0 => format!("SELECT awa.enqueue('step', queue => '{queue}')"),
            _ => format!("SELECT awa.insert_job_compat('step', '{queue}')"),
        };
        session.client.batch_execute(&format!("SET statement_timeout = {timeout}")).await.ok();
        if let Err(error) = session.client.batch_execute(&call).await {
            let refused = failure(Err::<(), _>(error));
            assert_eq!(refused.sqlstate, "57014", "{call}: {refused:?}");
        }
        // The error arrives before the transaction's end.
        session.client.batch_execute("SET statement_timeout = 0").await.unwrap();
        assert!(rows(&observer, &locks(session.pid), &[]).await.is_empty(), "{call} of {timeout} ms");
    }
}
