//! A call can be cancelled at any point, within a second, and leaves nothing.

use std::time::{Duration, Instant};

use awa_ingest_tests::{Failure, Storage, backend_pid, failure, jobs, rows, wait_until, wait_until_blocked, within};
use awa_model::InsertOpts;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// How soon a call has to end.
const SOON: Duration = Duration::from_secs(1);

/// More jobs than any server enqueues in the time that it takes to notice that they are being enqueued.
const MANY: i64 = 1_000_000;

const ENQUEUE_MANY: &str = "SELECT count(*) FROM source, awa.enqueue_batch(jobs)";

async fn prepare(client: &Client) {
    let source = format!(
        r#"CREATE TABLE source (jobs jsonb); ALTER TABLE source ALTER jobs SET STORAGE external;
           INSERT INTO source SELECT to_jsonb(array_fill('{{"kind": "step"}}'::jsonb, ARRAY[{MANY}]))"#
    );
    client.batch_execute(&source).await.expect(&source);
}

/// A call that is under way, and the backend that runs it.
struct Running {
    pid: i32,
    call: JoinHandle<(Client, Result<(), tokio_postgres::Error>)>,
}

impl Running {
    async fn start(client: Client, call: &'static str) -> Self {
        let pid = backend_pid(&client).await;
        let call = tokio::spawn(async move {
            let result = client.batch_execute(call).await;
            (client, result)
        });
        Self { pid, call }
    }

    /// Cancels the call, which must be over soon, and gives its session back.
    async fn cancel(self, observer: &Client, when: &str) -> Client {
        let cancelled = Instant::now();
        observer.execute("SELECT pg_cancel_backend($1)", &[&self.pid]).await.unwrap();
        let (client, result) = within(when, self.call).await.expect("the call's task");
        let took = cancelled.elapsed();
        assert_is_cancelled(&failure(result), when);
        assert!(took < SOON, "{when}: took {took:?}");
        client.batch_execute("SELECT 1").await.expect("a usable session");
        client
    }
}

async fn enqueue_afterwards(client: &Client) {
    jobs::enqueue(client, &jobs::job("afterwards", json!({}))).await;
}

fn assert_is_cancelled(refused: &Failure, when: &str) {
    assert_eq!(refused.sqlstate, "57014", "{when}: {refused:?}");
}

/// Files of this database's sessions: other tests run beside this one, in databases of their own.
const TEMPORARY_FILES: &str = "(SELECT file.name FROM pg_ls_tmpdir() AS file JOIN pg_stat_activity AS session
    ON file.name LIKE format('pgsql\\_tmp%s.%%', session.pid) WHERE session.datname = current_database())";

async fn assert_only_afterwards(client: &Client, storage: Storage, count: usize) {
    let found = rows(client, &format!("(SELECT kind FROM {})", storage.table("ready_entries")), &[]).await;
    assert_eq!(found, vec![json!({"kind": "afterwards"}); count], "{storage:?}");
    assert_eq!(rows(client, TEMPORARY_FILES, &[]).await.len(), 0, "temporary files");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_decodes_and_while_it_writes() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        prepare(&observer).await;
        let ids = format!("SELECT last_value FROM {}", storage.table("job_id_seq"));

        // Ids are given as jobs are decoded.
        let running = Running::start(db.connect().await, ENQUEUE_MANY).await;
        wait_until(&observer, &format!("SELECT ({ids}) > 1000")).await;
        enqueue_afterwards(&running.cancel(&observer, "decoding").await).await;
        let given: i64 = observer.query_one(&ids, &[]).await.unwrap().get(0);
        assert!(given < MANY, "it was still decoding");

        // The lane is locked behind the last job, and the partition behind the lane.
        let running = Running::start(db.connect().await, ENQUEUE_MANY).await;
        let partition = format!(
            "SELECT count(*) = 1 FROM pg_locks WHERE pid = {} AND relation = '{}'::regclass AND mode = 'RowExclusiveLock'",
            running.pid,
            storage.table("ready_entries_0")
        );
        wait_until(&observer, &partition).await;
        enqueue_afterwards(&running.cancel(&observer, "writing").await).await;
        let given_then: i64 = observer.query_one(&ids, &[]).await.unwrap().get(0);
        assert_eq!(given_then, given + MANY + 1, "it was writing");
        assert_only_afterwards(&observer, storage, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_waits_for_a_key() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (holder, observer) = (db.connect().await, db.connect().await);
        holder.batch_execute("BEGIN; SELECT awa.enqueue('once', uniqueness => 'true')").await.unwrap();
        for on_conflict in ["error", "skip"] {
            let call = if on_conflict == "skip" {
                r#"SELECT awa.enqueue_batch('[{"kind": "other"}, {"kind": "once", "unique": true}]', 'skip')"#
            } else {
                r#"SELECT awa.enqueue_batch('[{"kind": "other"}, {"kind": "once", "unique": true}]')"#
            };
            let running = Running::start(db.connect().await, call).await;
            wait_until_blocked(&observer, running.pid).await;
            running.cancel(&observer, &format!("waiting for a key, {on_conflict}")).await;
        }
        holder.batch_execute("ROLLBACK").await.unwrap();
        assert_only_afterwards(&observer, storage, 0).await;
        assert!(rows(&observer, &storage.table("job_unique_claims"), &[]).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_waits_for_a_lane() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (holder, observer) = (db.connect().await, db.connect().await);
        // Once a lane that is there already, once one that the holder is just creating.
        for known in [false, true] {
            holder.batch_execute("BEGIN").await.unwrap();
            let opts = InsertOpts { queue: "held".into(), ..Default::default() };
            jobs::enqueue(&holder, &jobs::job_with("held", json!({}), opts)).await;
            let call = r#"SELECT awa.enqueue_batch('[{"kind": "a", "unique": true}, {"kind": "b", "queue": "held"}]')"#;
            let running = Running::start(db.connect().await, call).await;
            wait_until_blocked(&observer, running.pid).await;
            running.cancel(&observer, &format!("waiting for a lane, known {known}, {storage:?}")).await;
            assert!(rows(&observer, &storage.table("job_unique_claims"), &[]).await.is_empty());
            holder.batch_execute("COMMIT").await.unwrap();
        }
        let found = rows(&observer, &format!("(SELECT kind FROM {})", storage.table("ready_entries")), &[]).await;
        assert_eq!(found, vec![json!({"kind": "held"}); 2]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_work() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        prepare(&client).await;
        client.batch_execute("SET statement_timeout = '300ms'").await.unwrap();
        let started = Instant::now();
        assert_is_cancelled(&failure(client.batch_execute(ENQUEUE_MANY).await), "statement_timeout");
        assert!(started.elapsed() < Duration::from_millis(300) + SOON, "{:?}", started.elapsed());
        enqueue_afterwards(&client).await;
        assert_only_afterwards(&client, storage, 1).await;
    }
}

/// A backend that is terminated lets its lane and its keys go.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_backend_holds_nothing() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (client, observer) = (db.connect().await, db.connect().await);
        enqueue_afterwards(&client).await;
        client.batch_execute("BEGIN; SELECT awa.enqueue('once', uniqueness => 'true')").await.unwrap();
        let pid = backend_pid(&client).await;
        observer.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
        wait_until(&observer, &format!("SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = {pid})")).await;
        observer
            .batch_execute("SET lock_timeout = '1s'; SELECT awa.enqueue('afterwards', uniqueness => 'true')")
            .await
            .expect("nobody holds it");
        assert_only_afterwards(&observer, storage, 2).await;
    }
}
