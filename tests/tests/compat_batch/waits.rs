//! While a statement that skips waits for a key or a lane: what ends the wait, and what it leaves.

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Db, failure, within};
use tokio_postgres::Client;

use crate::calls::{Way, keyed, plain};
use crate::crossings::Stage;
use crate::numbers;
use crate::old::{attached_with_original, insert_original};

/// What another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    Key,
    Lane,
}

impl Held {
    fn row(self) -> Row {
        match self {
            Self::Key => keyed(1, "elsewhere", 100),
            Self::Lane => plain("q", 100),
        }
    }
}

fn batch() -> Vec<Row> {
    vec![plain("q", 0), keyed(1, "q", 1), keyed(2, "q", 2)]
}

async fn hold(stage: &Stage, held: Held) {
    stage.other.batch_execute("BEGIN").await.unwrap();
    insert_original(&stage.other, &held.row()).await.expect("nobody holds it");
}

async fn settings(client: &Client) -> Vec<String> {
    let sql = "SELECT name || '=' || setting FROM pg_settings WHERE name IN ('lock_timeout', 'statement_timeout', 'deadlock_timeout') ORDER BY 1";
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// However long it takes, a key or a lane that another transaction holds is waited for, and what that transaction does decides. Settings
/// are the caller's before and after.
async fn waits_long(held: Held, ending: &str) {
    let db = attached_with_original(None).await;
    for way in Way::SKIPPING {
        let when = format!("{way:?}, {held:?}, {ending}");
        // The half of it is no time at all.
        let stage = Stage::new(&db, "1ms").await;
        stage.ours.batch_execute("SET lock_timeout = '1min'; BEGIN; SET LOCAL statement_timeout = '2min'").await.unwrap();
        let before = settings(&stage.ours).await;
        hold(&stage, held).await;
        let statement = stage.start(way, &batch()).await;
        // Longer than eight attempts, each twice as long as the one before.
        stage.wait_until_old("600 ms").await;
        stage.other.batch_execute(ending).await.unwrap();
        let outcomes = within(&when, statement).await.unwrap().unwrap_or_else(|error| panic!("{when}: {error:?}"));
        let lost = held == Held::Key && ending == "COMMIT";
        assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), [true, !lost, true], "{when}");
        assert_eq!(settings(&stage.ours).await, before, "{when}");
        stage.ours.batch_execute("COMMIT").await.unwrap();
        stage.assert_consistent(&batch(), &outcomes, &when).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_committed_late_is_skipped() {
    waits_long(Held::Key, "COMMIT").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_rolled_back_late_is_enqueued() {
    waits_long(Held::Key, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_is_free_late_is_waited_for() {
    waits_long(Held::Lane, "COMMIT").await;
}

/// The caller's own limits end the wait, with their own codes, however they compare to those of the attempts.
async fn limited(db: &Db, way: Way, held: Held, limit: &str, sqlstate: &str, deadlock_timeout: &str) {
    let when = format!("{way:?}, {held:?}, {limit}, deadlock_timeout {deadlock_timeout}");
    let stage = Stage::new(db, deadlock_timeout).await;
    stage.ours.batch_execute(limit).await.unwrap();
    let before = settings(&stage.ours).await;
    hold(&stage, held).await;
    let refused = failure(within(&when, way.skip(&stage.ours, &batch())).await);
    assert_eq!(refused.sqlstate, sqlstate, "{when}: {refused:?}");
    assert_eq!(settings(&stage.ours).await, before, "{when}");

    // Nothing is left, and what was taken is free: another session takes the same at once when the holder is gone.
    stage.other.batch_execute("ROLLBACK").await.unwrap();
    assert!(numbers(&stage.observer, "awa.ready_entries").await.is_empty(), "{when}");
    stage.observer.batch_execute("SET lock_timeout = '5s'").await.unwrap();
    let outcomes = way.skip(&stage.observer, &batch()).await.expect(&when);
    assert!(outcomes.iter().all(Option::is_some), "{when}");
    stage.ours.batch_execute("RESET lock_timeout; RESET statement_timeout").await.unwrap();
    assert_eq!(way.skip(&stage.ours, &batch()).await.expect(&when).iter().flatten().count(), 1, "{when}: it has no key");
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_timeout_ends_it() {
    let db = attached_with_original(None).await;
    for held in [Held::Key, Held::Lane] {
        for way in Way::SKIPPING {
            limited(&db, way, held, "SET lock_timeout = '200ms'", "55P03", "20ms").await;
            limited(&db, way, held, "SET lock_timeout = '30ms'", "55P03", "10s").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_timeout_ends_it() {
    let db = attached_with_original(None).await;
    for held in [Held::Key, Held::Lane] {
        for way in Way::SKIPPING {
            limited(&db, way, held, "SET statement_timeout = '200ms'", "57014", "20ms").await;
        }
    }
}

/// A process that the system lets wait finds both timeouts due at once, its own for a lock and the caller's. The server then reports the
/// first and forgets the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_of_the_statement_is_not_lost() {
    let db = attached_with_original(None).await;
    for held in [Held::Key, Held::Lane] {
        for way in Way::SKIPPING {
            let stage = Stage::new(&db, "600ms").await;
            stage.ours.batch_execute("SET statement_timeout = '500ms'").await.unwrap();
            hold(&stage, held).await;
            let statement = stage.start(way, &batch()).await;
            stage.signal(libc::SIGSTOP);
            stage.wait_until_old("600 ms").await;
            stage.signal(libc::SIGCONT);
            let refused = failure(within("the statement", statement).await.unwrap());
            assert_eq!(refused.sqlstate, "57014", "{way:?}, {held:?}: {refused:?}");
            stage.other.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

/// The same for a cancellation, which has no timer: who sent the signal tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_is_not_lost() {
    let db = attached_with_original(None).await;
    for held in [Held::Key, Held::Lane] {
        for way in Way::SKIPPING {
            let stage = Stage::new(&db, "600ms").await;
            hold(&stage, held).await;
            let statement = stage.start(way, &batch()).await;
            stage.signal(libc::SIGSTOP);
            stage.cancel().await;
            stage.wait_until_old("600 ms").await;
            stage.signal(libc::SIGCONT);
            let refused = failure(within("the statement", statement).await.unwrap());
            assert_eq!(refused.sqlstate, "57014", "{way:?}, {held:?}: {refused:?}");
            stage.other.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

/// The caller's lock_timeout is for the wait for one lock, and not for one attempt of it. All attempts would take five seconds.
#[tokio::test(flavor = "multi_thread")]
async fn lock_timeout_is_for_all_attempts_at_a_lock() {
    let db = attached_with_original(None).await;
    let limits = "SET lock_timeout = '2s'; SET statement_timeout = '4500ms'";
    for held in [Held::Key, Held::Lane] {
        for way in [Way::Batch, Way::Copy] {
            limited(&db, way, held, limits, "55P03", "1s").await;
        }
    }
}

/// As PostgreSQL has it: locks that are waited for one after the other have the time for each.
#[tokio::test(flavor = "multi_thread")]
async fn lock_timeout_is_for_each_lock() {
    let db = attached_with_original(None).await;
    let stage = Stage::new(&db, "200ms").await;
    let second = db.connect().await;
    for (first_held, then_held) in [("key", "lane"), ("key", "other key"), ("lane", "other lane")] {
        let when = format!("{first_held}, {then_held}");
        stage.observer.batch_execute("TRUNCATE awa.ready_entries, awa.ready_segments, awa.job_unique_claims").await.unwrap();
        let row = |held: &str| match held {
            "key" => keyed(1, "elsewhere", 100),
            "other key" => keyed(2, "elsewhere too", 101),
            "lane" => plain("q", 102),
            _ => plain("z", 103),
        };
        insert_original(&stage.observer, &plain("z", 104)).await.expect("a lane");
        for (client, held) in [(&*stage.other, first_held), (&second, then_held)] {
            client.batch_execute("BEGIN").await.unwrap();
            insert_original(client, &row(held)).await.expect("nobody holds it");
        }
        stage.ours.batch_execute("SET lock_timeout = '4s'").await.unwrap();
        let mut sent = batch();
        sent.push(plain("z", 3));
        let statement = stage.start(Way::Batch, &sent).await;
        stage.wait_until_old("2500 ms").await;
        stage.other.batch_execute("ROLLBACK").await.unwrap();
        stage.wait_until_old("5 s").await;
        second.batch_execute("ROLLBACK").await.unwrap();
        let outcomes = within(&when, statement).await.unwrap().unwrap_or_else(|error| panic!("{when}: {error:?}"));
        assert!(outcomes.iter().all(Option::is_some), "{when}");
    }
}

/// PostgreSQL starts the clock of a statement when it begins: a statement_timeout that is set within it is for later ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_timeout_that_is_set_within_is_not_its_own() {
    let db = attached_with_original(None).await;
    let stage = Stage::new(&db, "20ms").await;
    let call = r#"SELECT count(*) FROM awa.enqueue_batch('[{"kind": "k", "queue": "q"}]', 'skip')"#;
    stage
        .observer
        .batch_execute(&format!(
            "CREATE FUNCTION limited() RETURNS bigint LANGUAGE sql SET statement_timeout = '50ms' AS $$ {call} $$;
             CREATE FUNCTION limiting() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM set_config('statement_timeout', '50ms', true); RETURN ({call}); END $$"
        ))
        .await
        .unwrap();
    for function in ["limited", "limiting"] {
        hold(&stage, Held::Lane).await;
        let (ours, sql) = (stage.ours.clone(), format!("SELECT {function}()"));
        let statement = tokio::spawn(async move { ours.query_one(&sql, &[]).await.map(|row| row.get::<_, i64>(0)) });
        stage.wait_until_old("500 ms").await;
        stage.other.batch_execute("COMMIT").await.unwrap();
        let count = within(function, statement).await.unwrap().unwrap_or_else(|error| panic!("{function}: {error:?}"));
        assert_eq!(count, 1, "{function}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_ends_it() {
    let db = attached_with_original(None).await;
    for held in [Held::Key, Held::Lane] {
        for way in Way::SKIPPING {
            let stage = Stage::new(&db, "20ms").await;
            hold(&stage, held).await;
            let statement = stage.start(way, &batch()).await;
            // Some attempts later.
            stage.wait_until_old("100 ms").await;
            stage.cancel().await;
            let refused = failure(within("the statement", statement).await.unwrap());
            assert_eq!(refused.sqlstate, "57014", "{way:?}, {held:?}: {refused:?}");
            stage.other.batch_execute("ROLLBACK").await.unwrap();
            let outcomes = way.skip(&stage.ours, &batch()).await.expect("a usable session");
            assert!(outcomes.iter().all(Option::is_some), "{way:?}, {held:?}");
            stage.assert_consistent(&batch(), &outcomes, "after a cancellation").await;
        }
    }
}

/// A key that was committed since the snapshot is refused as PostgreSQL refuses such writes: before the call, and while it waits.
#[tokio::test(flavor = "multi_thread")]
async fn old_snapshots_get_40001() {
    let db = attached_with_original(None).await;
    for way in Way::SKIPPING {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let stage = Stage::new(&db, "20ms").await;
            let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class");
            stage.ours.batch_execute(&begin).await.unwrap();
            insert_original(&stage.observer, &keyed(1, "q", 100)).await.expect("a key");
            let refused = failure(way.skip(&stage.ours, &batch()).await);
            assert_eq!(refused.sqlstate, "40001", "{way:?}, {level}: {refused:?}");
            stage.ours.batch_execute("ROLLBACK").await.unwrap();

            for (ending, key) in [("COMMIT", 11), ("ROLLBACK", 12)] {
                let batch = [plain("q", 0), keyed(key, "q", 1)];
                stage.ours.batch_execute(&begin).await.unwrap();
                stage.other.batch_execute("BEGIN").await.unwrap();
                insert_original(&stage.other, &keyed(key, "elsewhere", 100)).await.expect("a key");
                let statement = stage.start(way, &batch).await;
                stage.other.batch_execute(ending).await.unwrap();
                let result = within("the statement", statement).await.unwrap();
                if ending == "COMMIT" {
                    let refused = failure(result);
                    assert_eq!(refused.sqlstate, "40001", "{way:?}, {level}, while it waits: {refused:?}");
                } else {
                    assert!(result.expect("the key is free").iter().all(Option::is_some), "{way:?}, {level}");
                }
                stage.ours.batch_execute("ROLLBACK").await.unwrap();
            }
        }
    }
}

/// The caller's savepoints are around it, not in its way, whatever attempts there were.
#[tokio::test(flavor = "multi_thread")]
async fn savepoints_of_the_caller() {
    let db = attached_with_original(None).await;
    for way in Way::SKIPPING {
        for (ending, left) in [("RELEASE s", [1, 2, 3].as_slice()), ("ROLLBACK TO s", &[1, 3])] {
            let stage = Stage::new(&db, "100ms").await;
            stage.ours.batch_execute("CREATE TABLE IF NOT EXISTS orders (n bigint); TRUNCATE orders; BEGIN; INSERT INTO orders VALUES (1); SAVEPOINT s").await.unwrap();
            stage.ours.batch_execute("INSERT INTO orders VALUES (2)").await.unwrap();
            // A crossing of keys.
            stage.other.batch_execute("BEGIN").await.unwrap();
            insert_original(&stage.other, &keyed(2, "elsewhere", 100)).await.expect("a key");
            let statement = stage.start(way, &batch()).await;
            within("the other one", insert_original(&stage.other, &keyed(1, "elsewhere", 101))).await.expect("it gives way");
            stage.other.batch_execute("ROLLBACK").await.unwrap();
            let outcomes = within("the statement", statement).await.unwrap().expect("it has another try");
            assert!(outcomes.iter().all(Option::is_some), "{way:?}");

            stage.ours.batch_execute(&format!("{ending}; INSERT INTO orders VALUES (3); COMMIT")).await.unwrap();
            assert_eq!(orders(&stage.observer).await, left, "{way:?}, {ending}");
            let again = way.skip(&stage.observer, &batch()).await.expect("another session");
            let free = ending != "RELEASE s";
            assert_eq!(again.iter().map(Option::is_some).collect::<Vec<_>>(), [true, free, free], "{way:?}, {ending}");
            stage.assert_consistent(&batch(), &again, ending).await;
        }
    }
}

async fn orders(client: &Client) -> Vec<i64> {
    client.query("SELECT n FROM orders ORDER BY n", &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}
