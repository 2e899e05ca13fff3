//! Dropping the extension while producers are under way: their jobs keep it, however they were enqueued and however it is dropped.

use awa_ingest_tests::{Db, Failure, Session, backend_pid, failure, rows, wait_until, wait_until_blocked, within};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// A drop that is under way.
struct Drop {
    pid: i32,
    task: JoinHandle<(Client, Result<(), tokio_postgres::Error>)>,
}

impl Drop {
    /// Runs `drop`, behind `before` in the same session.
    async fn start(db: &Db, before: &str, drop: String) -> Self {
        let client = db.connect().await;
        client.batch_execute(before).await.expect(before);
        let pid = backend_pid(&client).await;
        let task = tokio::spawn(async move {
            let result = client.batch_execute(&drop).await;
            (client, result)
        });
        Self { pid, task }
    }

    async fn refused(self) -> Failure {
        let (_, result) = within("the drop", self.task).await.expect("the task");
        failure(result)
    }
}

async fn stored(client: &Client) -> usize {
    let jobs = "(SELECT job_id FROM awa_ingest.ready_entries UNION ALL SELECT job_id FROM awa_ingest.deferred_jobs)";
    rows(client, jobs, &[]).await.len()
}

/// A producer that has enqueued, and commits while `drop` waits for it.
async fn assert_job_keeps_extension(db: &Db, enqueue: &str, before: &str, drop: &str) {
    let (producer, observer) = (db.connect().await, db.connect().await);
    producer.batch_execute(&format!("BEGIN; {enqueue}")).await.expect(enqueue);
    let dropping = Drop::start(db, before, drop.to_owned()).await;
    wait_until_blocked(&observer, dropping.pid).await;
    producer.batch_execute("COMMIT").await.expect(enqueue);
    let refused = dropping.refused().await;
    assert_eq!(refused.sqlstate, "2BP01", "{enqueue}; {drop}: {refused:?}");
    assert!(refused.hint.contains("awa_ingest.allow_drop"), "{enqueue}; {drop}: {refused:?}");
    assert_eq!(stored(&observer).await, 1, "{enqueue}; {drop}");
}

const FUNCTION: &str = "SELECT awa.enqueue('step')";
const DROP: &str = "DROP EXTENSION awa_ingest";

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_is_waited_for_and_its_job_is_seen() {
    for enqueue in [
        FUNCTION,
        "SELECT awa.enqueue_batch('[{\"kind\": \"step\"}]')",
        "INSERT INTO awa.ingest (kind) VALUES ('step')",
        "SELECT awa.enqueue('later', run_at => now() + interval '1 day')",
    ] {
        assert_job_keeps_extension(&Db::embedded().await, enqueue, "SELECT 1", DROP).await;
    }
}

/// The statement that takes the extension along may be another one, and its transaction's snapshot older than the job.
#[tokio::test(flavor = "multi_thread")]
async fn every_drop_looks_behind_its_locks() {
    let db = Db::bare().await;
    let owner = db.role("owner").await;
    let setup = format!("ALTER ROLE {owner} SUPERUSER; SET ROLE {owner}; CREATE EXTENSION awa_ingest");
    db.connect().await.batch_execute(&setup).await.expect(&setup);
    let old_snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM awa_ingest.ready_entries";
    let drops = [
        ("SELECT 1", "DROP EXTENSION awa_ingest CASCADE".to_owned()),
        ("SELECT 1", "DROP SCHEMA awa CASCADE".to_owned()),
        ("SELECT 1", format!("DROP OWNED BY {owner} CASCADE")),
        (old_snapshot, DROP.to_owned()),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1", DROP.to_owned()),
    ];
    for (before, drop) in &drops {
        assert_job_keeps_extension(&db, FUNCTION, before, drop).await;
        db.connect().await.batch_execute("TRUNCATE awa_ingest.ready_entries, awa_ingest.ready_segments").await.unwrap();
    }
}

/// A COPY holds its foreign table while its rows arrive, and writes at its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_waited_for_to_its_end() {
    let db = Db::embedded().await;
    let observer = db.connect().await;
    observer
        .batch_execute("CREATE FOREIGN TABLE public.mine (kind text) SERVER awa_ingest")
        .await
        .expect("a foreign table of a user's own");
    for table in ["awa.ingest", "public.mine"] {
        let producer = Session::open(&db).await;
        let mut copy = producer.copy(&format!("COPY {table} (kind) FROM STDIN")).await;
        copy.send("step\n").await.unwrap();
        copy.wait_until_taken(&observer).await;
        let dropping = Drop::start(&db, "SELECT 1", "DROP EXTENSION awa_ingest CASCADE".to_owned()).await;
        wait_until_blocked(&observer, dropping.pid).await;
        copy.finish().await.expect("the COPY is not disturbed");
        assert_eq!(dropping.refused().await.sqlstate, "2BP01", "{table}");
        assert_eq!(stored(&observer).await, 1, "{table}");
        observer.batch_execute("TRUNCATE awa_ingest.ready_entries, awa_ingest.ready_segments").await.unwrap();
    }
}

/// A producer that comes while a drop waits for another one enqueues as well: the drop gives its locks back in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_drop_does_not_deadlock_with_its_producers() {
    let db = Db::embedded().await;
    let (producer, observer) = (db.connect().await, db.connect().await);
    // The deferred job's table comes last for a drop, and first here.
    producer.batch_execute("BEGIN; SELECT awa.enqueue('later', run_at => now() + interval '1 day')").await.unwrap();
    let dropping = Drop::start(&db, "SELECT 1", DROP.to_owned()).await;
    wait_until_blocked(&observer, dropping.pid).await;
    producer.batch_execute(FUNCTION).await.expect("no deadlock");
    producer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(dropping.refused().await.sqlstate, "2BP01");
    assert_eq!(stored(&observer).await, 2);
}

/// What the waiting was for may be rolled back: then the extension goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_job_is_no_obstacle() {
    let db = Db::embedded().await;
    let (producer, observer) = (db.connect().await, db.connect().await);
    producer.batch_execute(&format!("BEGIN; {FUNCTION}")).await.unwrap();
    let dropping = Drop::start(&db, "SELECT 1", DROP.to_owned()).await;
    wait_until_blocked(&observer, dropping.pid).await;
    producer.batch_execute("ROLLBACK").await.unwrap();
    within("the drop", dropping.task).await.unwrap().1.expect("nothing is left to keep it");
    assert!(rows(&observer, "(SELECT FROM pg_extension WHERE extname = 'awa_ingest')", &[]).await.is_empty());
}

/// An attach that commits while the drop waits for it counts, as one before it does.
#[tokio::test(flavor = "multi_thread")]
async fn an_attach_under_way_is_waited_for() {
    let db = Db::awa().await;
    let (owner, observer) = (db.connect().await, db.connect().await);
    owner.batch_execute("BEGIN; SELECT awa_ingest.attach()").await.unwrap();
    let dropping = Drop::start(&db, "SELECT 1", DROP.to_owned()).await;
    wait_until_blocked(&observer, dropping.pid).await;
    owner.batch_execute("COMMIT").await.unwrap();
    let refused = dropping.refused().await;
    assert_eq!(refused.sqlstate, "2BP01", "{refused:?}");
    assert!(refused.hint.contains("awa_ingest.detach"), "{refused:?}");
}

/// Who may not drop the extension is refused by the server, and waits for no producer nor keeps any waiting.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_drop_locks_nothing() {
    let db = Db::embedded().await;
    let (producer, observer) = (db.connect().await, db.connect().await);
    let role = db.role("nobody").await;
    observer.batch_execute(&format!("SELECT awa_ingest.grant_producer('{role}')")).await.unwrap();
    let client = db.connect_as(&role).await;
    let pid = backend_pid(&client).await;
    producer.batch_execute(&format!("BEGIN; {FUNCTION}")).await.unwrap();
    for drop in [DROP, "DROP EXTENSION plpgsql CASCADE", "DROP SCHEMA awa CASCADE", "DROP OWNED BY postgres CASCADE"] {
        let refused = failure(within(drop, client.batch_execute(&format!("BEGIN; SET lock_timeout = '10s'; {drop}"))).await);
        assert_eq!(refused.sqlstate, "42501", "{drop}: {refused:?}");
        wait_until(&observer, &format!("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted)")).await;
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    producer.batch_execute("COMMIT").await.unwrap();
}

/// The caller's lock_timeout ends the wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_timeout_ends_the_wait() {
    let db = Db::embedded().await;
    let producer = db.connect().await;
    producer.batch_execute(&format!("BEGIN; {FUNCTION}")).await.unwrap();
    let dropping = Drop::start(&db, "SET lock_timeout = '200ms'", DROP.to_owned()).await;
    assert_eq!(dropping.refused().await.sqlstate, "55P03");
    producer.batch_execute(&format!("{FUNCTION}; COMMIT")).await.expect("undisturbed");
}
