//! Counted is what commits, and nothing else.

use awa_ingest_tests::{Session, Template, failure, within};
use tokio_postgres::Client;

use crate::{counted, database, of, run};

async fn client() -> Client {
    database(Template::Embedded).await.connect().await
}

/// A statement that enqueues so many jobs into a queue, one call each.
fn calls(queue: &str, jobs: i64) -> String {
    format!("SELECT awa.enqueue('k', queue => '{queue}') FROM generate_series(1, {jobs});")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_counts_nothing() {
    let client = client().await;
    run(&client, &format!("BEGIN; {} ROLLBACK", calls("q", 3))).await;
    let failed = client.batch_execute("SELECT awa.enqueue('k'); SELECT awa.enqueue('')").await;
    assert_eq!(failure(failed).sqlstate, "23514");
    assert_eq!(counted(&client).await, []);
    run(&client, &format!("BEGIN; {}", calls("q", 2))).await;
    assert_eq!(counted(&client).await, [], "it is not committed yet");
    run(&client, "COMMIT").await;
    assert_eq!(counted(&client).await, [of("q", 2, 2, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_take_back_their_own_part_only() {
    let client = client().await;
    let statements = [
        "BEGIN;",
        &calls("q", 1),
        // Rolled back, with what was released within it.
        "SAVEPOINT a;",
        &calls("q", 10),
        "SAVEPOINT b;",
        &calls("q", 100),
        "RELEASE b;",
        &calls("r", 1),
        "ROLLBACK TO a;",
        // The same savepoint is still there, and is kept this time, as are those within it.
        &calls("q", 1000),
        "SAVEPOINT c;",
        &calls("q", 2),
        "SAVEPOINT d;",
        &calls("q", 20),
        "ROLLBACK TO d;",
        "RELEASE c;",
        // Nothing was counted between this one and the one within it.
        "SAVEPOINT e; SAVEPOINT f;",
        &calls("q", 3),
        "RELEASE f; ROLLBACK TO e; SAVEPOINT f;",
        &calls("q", 4),
        "RELEASE f; RELEASE e; SAVEPOINT g;",
        &calls("s", 1),
        // g is open at the end.
        "COMMIT",
    ];
    run(&client, &statements.concat()).await;
    assert_eq!(counted(&client).await, [of("q", 1007, 1007, 0), of("s", 1, 1, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exceptions_that_are_caught_take_back_their_part() {
    let client = client().await;
    let block = "DO $$ BEGIN
        FOR n IN 1..10 LOOP
            BEGIN
                PERFORM awa.enqueue('k', queue => 'q');
                IF n % 2 = 0 THEN PERFORM awa.enqueue('k', queue => 'q', priority => 9::smallint); END IF;
            EXCEPTION WHEN check_violation THEN
                PERFORM awa.enqueue('k', queue => 'handler');
            END;
        END LOOP;
    END $$";
    run(&client, block).await;
    assert_eq!(counted(&client).await, [of("handler", 5, 5, 0), of("q", 5, 5, 0)]);
    let procedure = "DO $$ BEGIN
        PERFORM awa.enqueue('k', queue => 'first'); COMMIT;
        PERFORM awa.enqueue('k', queue => 'second'); ROLLBACK;
        PERFORM awa.enqueue('k', queue => 'third');
    END $$";
    run(&client, procedure).await;
    assert_eq!(counted(&client).await, [of("first", 1, 1, 0), of("handler", 5, 5, 0), of("q", 5, 5, 0), of("third", 1, 1, 0)]);
}

/// What becomes of it is decided by whoever commits it.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_is_not_counted() {
    let client = client().await;
    // Notifications cannot be prepared: a deferred job sends none.
    let deferred = "SELECT awa.enqueue('k', queue => 'q', run_at => now() + interval '1 h')";
    run(&client, &format!("BEGIN; {deferred}; PREPARE TRANSACTION 'counted'")).await;
    run(&client, "COMMIT PREPARED 'counted'").await;
    assert_eq!(counted(&client).await, []);
    run(&client, deferred).await;
    assert_eq!(counted(&client).await, [of("q", 1, 1, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_terminated_counts_nothing() {
    let db = database(Template::Embedded).await;
    let observer = db.connect().await;
    let session = Session::open(&db).await;
    run(&session.client, &format!("BEGIN; {} SAVEPOINT s; {}", calls("q", 3), calls("q", 4))).await;
    let end = format!("SELECT pg_terminate_backend({})", session.pid);
    run(&observer, &end).await;
    session.wait_until_gone(&observer).await;
    assert_eq!(counted(&observer).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_count_together() {
    const SESSIONS: i64 = 24;
    let db = database(Template::Awa).await;
    let observer = db.connect().await;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let client = db.connect().await;
        sessions.push(tokio::spawn(async move {
            let queue = format!("q{}", number % 3);
            for round in 0..20 {
                let end = if round % 5 == 4 { "ROLLBACK" } else { "COMMIT" };
                run(&client, &format!("BEGIN; {} {} {end}", calls("all", 2), calls(&queue, 1))).await;
            }
        }));
    }
    for session in sessions {
        within("a session", session).await.expect("the task");
    }
    let (each, third) = (SESSIONS * 16, SESSIONS * 16 / 3);
    let queue = |name| of(name, third, third, 0);
    assert_eq!(counted(&observer).await, [of("all", each * 2, each * 2, 0), queue("q0"), queue("q1"), queue("q2")]);
}
