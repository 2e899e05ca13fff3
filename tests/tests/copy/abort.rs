//! A COPY that does not come to its end, whoever ends it and when, leaves nothing, and the next one works.

use awa_ingest_tests::copy::{copy_csv, last_summary};
use awa_ingest_tests::{
    Db, OpenCopy, Session, Storage, assert_nothing_stored, failure, stored_kinds, wait_until, wait_until_blocked, within,
};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error};

const TABLES: [&str; 2] = ["awa.ingest", "awa.ingest_skip_conflicts"];

fn statement(table: &str) -> String {
    format!("COPY {table} (kind, queue, args, run_at, unique_key, unique_states) FROM STDIN WITH (FORMAT csv, NULL '')")
}

/// Ordinary, deferred and unique jobs in turn, in several lanes, some 100 bytes each.
fn lines(numbers: std::ops::Range<usize>) -> String {
    let padding = "x".repeat(60);
    let line = |n: usize| match n % 3 {
        0 => format!("plain,q{},\"{{\"\"p\"\": \"\"{padding}\"\"}}\",,,\n", n % 5),
        1 => format!("later,,{n},2041-01-01,,\n"),
        _ => format!("once,,\"\"\"{padding}\"\"\",,\\x{n:08x},11000000\n"),
    };
    numbers.map(line).collect()
}

/// A session with a COPY that has spilled to temporary files and waits for more.
async fn streaming(db: &Db, observer: &Client, table: &str) -> (Session, OpenCopy) {
    let session = Session::open(db).await;
    session.client.batch_execute("SET awa_ingest.batch_memory = '64kB'").await.expect("SET");
    let mut copy = session.copy(&statement(table)).await;
    copy.send(lines(0..3000)).await.expect("sending");
    copy.wait_until_taken(observer).await;
    copy.wait_until_spilled(observer).await;
    (session, copy)
}

/// A session whose COPY has got all its rows and is writing: it has its keys and lanes, and waits for the table of ready rows, which
/// `holder` has locked.
async fn writing(db: &Db, holder: &Client, table: &str, storage: Storage) -> (Session, JoinHandle<Result<u64, Error>>) {
    let (session, copy) = streaming(db, holder, table).await;
    let lock = format!("BEGIN; LOCK TABLE {} IN SHARE MODE", storage.table("ready_entries"));
    holder.batch_execute(&lock).await.expect(&lock);
    let finish = tokio::spawn(copy.finish());
    wait_until_blocked(holder, session.pid).await;
    let locks = format!(
        "SELECT count(*) FILTER (WHERE locktype = 'advisory' AND granted) > 0 AND
                count(*) FILTER (WHERE relation = '{}'::regclass AND mode = 'RowExclusiveLock') = 1 FROM pg_locks WHERE pid = {}",
        storage.table("job_unique_claims"),
        session.pid
    );
    let holds_locks: bool = holder.query_one(&locks, &[]).await.expect(&locks).get(0);
    assert!(holds_locks, "keys and lanes are taken");
    (session, finish)
}

/// Nothing is left of a COPY, and the same session copies again.
async fn assert_recovered(session: &Session, observer: &Client, storage: Storage, when: &str) {
    // Its answer comes after the cleaning up, which an error does not wait for.
    assert_eq!(last_summary(&session.client).await, None, "{when}: there is nothing to tell");
    assert_nothing_stored(observer, storage, when).await;
    Session::assert_no_temporary_files(session.pid, observer, when).await;
    assert_eq!(copy_csv(&session.client, "awa.ingest", "kind, uniqueness", "after,true\n").await.expect(when), 1);
    assert_eq!(stored_kinds(observer, storage).await, ["after"], "{when}, {storage:?}");
}

/// The same where the session has gone with its COPY.
async fn assert_others_go_on(db: &Db, pid: i32, observer: &Client, storage: Storage, when: &str) {
    let locks = format!("SELECT count(*) FROM pg_locks WHERE pid = {pid}");
    assert_eq!(observer.query_one(&locks, &[]).await.unwrap().get::<_, i64>(0), 0, "{when}");
    Session::assert_no_temporary_files(pid, observer, when).await;
    assert_recovered(&Session::open(db).await, observer, storage, when).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_aborts() {
    for storage in Storage::BOTH {
        for table in TABLES {
            let db = storage.db().await;
            let observer = db.connect().await;
            let (session, copy) = streaming(&db, &observer, table).await;
            drop(copy);
            assert_recovered(&session, &observer, storage, &format!("CopyFail into {table}")).await;
        }
    }
}

/// Within a transaction only the COPY is lost, if there is a savepoint.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_aborts_to_a_savepoint() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        let session = Session::open(&db).await;
        session.client.batch_execute("BEGIN; INSERT INTO awa.ingest (kind) VALUES ('before'); SAVEPOINT s").await.unwrap();
        let mut copy = session.copy(&statement("awa.ingest")).await;
        copy.send(lines(0..100)).await.unwrap();
        copy.wait_until_taken(&observer).await;
        drop(copy);
        assert_eq!(
            failure(session.client.query("SELECT 1", &[]).await).sqlstate,
            "25P02",
            "the transaction waits for a ROLLBACK TO"
        );
        session.client.batch_execute("ROLLBACK TO s").await.unwrap();
        assert_eq!(copy_csv(&session.client, "awa.ingest", "kind", "after\n").await.expect("COPY"), 1);
        session.client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(stored_kinds(&observer, storage).await, ["before", "after"], "{storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_breaks() {
    for storage in Storage::BOTH {
        for table in TABLES {
            let db = storage.db().await;
            let observer = db.connect().await;
            let (session, copy) = streaming(&db, &observer, table).await;
            let pid = session.pid;
            session.break_off(&observer).await;
            drop(copy);
            assert_others_go_on(&db, pid, &observer, storage, &format!("broken off, {table}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backend_is_terminated() {
    for storage in Storage::BOTH {
        let (db, terminate) = (storage.db().await, "SELECT pg_terminate_backend($1)");
        let observer = db.connect().await;
        let (session, copy) = streaming(&db, &observer, TABLES[0]).await;
        observer.execute(terminate, &[&session.pid]).await.unwrap();
        session.wait_until_gone(&observer).await;
        drop(copy);
        assert_others_go_on(&db, session.pid, &observer, storage, "terminated while streaming").await;

        let db = storage.db().await;
        let holder = db.connect().await;
        let (session, finish) = writing(&db, &holder, TABLES[1], storage).await;
        holder.execute(terminate, &[&session.pid]).await.unwrap();
        assert!(within("the COPY", finish).await.expect("the task").is_err());
        holder.batch_execute("ROLLBACK").await.unwrap();
        session.wait_until_gone(&holder).await;
        assert_others_go_on(&db, session.pid, &holder, storage, "terminated while writing").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_is_cancelled() {
    for storage in Storage::BOTH {
        let (db, cancel) = (storage.db().await, "SELECT pg_cancel_backend($1)");
        let observer = db.connect().await;
        let (session, mut copy) = streaming(&db, &observer, TABLES[1]).await;
        observer.execute(cancel, &[&session.pid]).await.unwrap();
        copy.send_until_ended(lines(0..500), &observer).await;
        assert_eq!(failure(copy.finish().await).sqlstate, "57014");
        assert_recovered(&session, &observer, storage, "cancelled while streaming").await;

        let db = storage.db().await;
        let holder = db.connect().await;
        let (session, finish) = writing(&db, &holder, TABLES[0], storage).await;
        holder.execute(cancel, &[&session.pid]).await.unwrap();
        let cancelled = within("the COPY", finish).await.expect("the task");
        assert_eq!(failure(cancelled).sqlstate, "57014");
        holder.batch_execute("ROLLBACK").await.unwrap();
        assert_recovered(&session, &holder, storage, "cancelled while writing").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_times_out() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        let session = Session::open(&db).await;
        warm_up(&session, "SET awa_ingest.batch_memory = '64kB'; SET statement_timeout = '1s'").await;
        let mut copy = session.copy(&statement(TABLES[0])).await;
        copy.send_until_ended(lines(0..500), &observer).await;
        assert_eq!(failure(copy.finish().await).sqlstate, "57014");
        session.client.batch_execute("RESET statement_timeout").await.unwrap();
        assert_recovered(&session, &observer, storage, "timed out while streaming").await;

        let db = storage.db().await;
        let holder = db.connect().await;
        let (session, timed_out) = write_against_a_lock(&db, &holder, "SET statement_timeout = '2s'", storage).await;
        assert_eq!(failure(timed_out).sqlstate, "57014");
        holder.batch_execute("ROLLBACK").await.unwrap();
        session.client.batch_execute("RESET statement_timeout").await.unwrap();
        assert_recovered(&session, &holder, storage, "timed out while writing").await;
    }
}

/// Loads the library and plans its statements before a time that `limit` sets counts.
async fn warm_up(session: &Session, limit: &str) {
    let insert = "BEGIN; INSERT INTO awa.ingest (kind) VALUES ('lost'); ROLLBACK";
    session.client.batch_execute(&format!("{insert}; {limit}")).await.expect(limit);
}

/// As [`writing`], but the session has a time limit of its own, which ends the COPY.
async fn write_against_a_lock(db: &Db, holder: &Client, limit: &str, storage: Storage) -> (Session, Result<u64, Error>) {
    let session = Session::open(db).await;
    warm_up(&session, limit).await;
    let lock = format!("BEGIN; LOCK TABLE {} IN SHARE MODE", storage.table("ready_entries"));
    holder.batch_execute(&lock).await.expect(&lock);
    let mut copy = session.copy(&statement("awa.ingest")).await;
    copy.send(lines(0..30)).await.expect("sending");
    let result = within("the COPY", copy.finish()).await;
    (session, result)
}

/// A lock that is not to be had in time ends the COPY, not the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_to_be_had() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let holder = db.connect().await;
        let (session, refused) = write_against_a_lock(&db, &holder, "SET lock_timeout = '500ms'", storage).await;
        assert_eq!(failure(refused).sqlstate, "55P03");
        holder.batch_execute("ROLLBACK").await.unwrap();
        assert_recovered(&session, &holder, storage, "no lock").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_files_are_limited() {
    for storage in Storage::BOTH {
        for table in TABLES {
            let db = storage.db().await;
            let observer = db.connect().await;
            let session = Session::open(&db).await;
            session.client.batch_execute("SET awa_ingest.batch_memory = '64kB'; SET temp_file_limit = '200kB'").await.unwrap();
            for columns in ["streaming", "again"] {
                let mut copy = session.copy(&statement(table)).await;
                copy.send(lines(0..5000)).await.expect("sending");
                assert_eq!(failure(copy.finish().await).sqlstate, "53400", "{columns} into {table}");
            }
            let insert = format!(
                "INSERT INTO {table} (kind, args) SELECT 'k', to_jsonb(repeat('x', 500)) FROM generate_series(1, 5000) RETURNING job_id"
            );
            assert_eq!(failure(session.client.query(&insert, &[]).await).sqlstate, "53400");
            assert_recovered(&session, &observer, storage, &format!("temp_file_limit, {table}")).await;
        }
    }
}

/// A session that ends while it tells of its last statement lets go of all its locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_is_terminated_while_it_tells() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        observer.batch_execute("CREATE TABLE locked ()").await.unwrap();
        for round in 0..5 {
            let session = Session::open(&db).await;
            let before = "INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 30000); BEGIN; LOCK TABLE locked";
            session.client.batch_execute(before).await.expect(before);
            let telling =
                session.client.batch_execute("DO $$ BEGIN LOOP PERFORM count(*) FROM awa.last_ingest(); END LOOP; END $$");
            let ending = async {
                let active = format!("SELECT state = 'active' FROM pg_stat_activity WHERE pid = {}", session.pid);
                wait_until(&observer, &active).await;
                observer.execute("SELECT pg_terminate_backend($1)", &[&session.pid]).await.unwrap();
            };
            assert!(tokio::join!(telling, ending).0.is_err());
            session.wait_until_gone(&observer).await;
            let lock = "SET lock_timeout = '5s'; BEGIN; LOCK TABLE locked; ROLLBACK";
            observer.batch_execute(lock).await.unwrap_or_else(|error| panic!("round {round}, {storage:?}: {error:?}"));
        }
    }
}
