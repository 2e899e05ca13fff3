//! What a session's last COPY or INSERT did is that of its user, and is forgotten with the session's other state.

use awa_ingest_tests::Db;
use tokio_postgres::Client;

const TOLD: [&str; 2] = ["SELECT FROM awa.last_ingest()", "SELECT FROM awa.last_ingest_summary()"];

async fn count(client: &Client) -> [usize; 2] {
    let mut counts = [0; 2];
    for (place, query) in TOLD.iter().enumerate() {
        counts[place] = client.query(*query, &[]).await.unwrap_or_else(|error| panic!("{query}: {error:?}")).len();
    }
    counts
}

async fn insert(client: &Client) {
    client.batch_execute("INSERT INTO awa.ingest (kind) VALUES ('k'), ('k')").await.expect("INSERT");
    assert_eq!(count(client).await, [2, 1], "the user itself knows");
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// The next user of a pooled connection begins with this.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_reset_knows_nothing() {
    let client = Db::embedded().await.connect().await;
    for reset in ["DISCARD ALL", "RESET ALL", "BEGIN; RESET ALL; ROLLBACK"] {
        insert(&client).await;
        run(&client, reset).await;
        assert_eq!(count(&client).await, [0, 0], "{reset}");
        // No setting brings it back.
        for setting in ["SET awa_ingest.has_last_ingest = on", "SELECT set_config('awa_ingest.has_last_ingest', 'on', false)"] {
            run(&client, setting).await;
            assert_eq!(count(&client).await, [0, 0], "{setting} after {reset}");
        }
    }
    insert(&client).await;
    run(&client, "SET work_mem = '8MB'; RESET work_mem; DISCARD TEMP; DISCARD PLANS; DISCARD SEQUENCES").await;
    assert_eq!(count(&client).await, [2, 1], "what resets less");
    let listed = client.query("SELECT FROM pg_settings WHERE name LIKE 'awa_ingest.has%'", &[]).await.expect("pg_settings");
    assert!(listed.is_empty(), "the setting is none for users");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_of_the_session_knows_nothing() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let [first, second] = [db.role("first").await, db.role("second").await];
    run(&client, &format!("SELECT awa_ingest.grant_producer('{first}'), awa_ingest.grant_producer('{second}')")).await;
    for become_other in ["ROLE", "SESSION AUTHORIZATION"] {
        let reset = if become_other == "ROLE" { "RESET ROLE" } else { "RESET SESSION AUTHORIZATION" };
        run(&client, &format!("SET {become_other} {first}")).await;
        insert(&client).await;
        run(&client, &format!("{reset}; SET {become_other} {second}")).await;
        assert_eq!(count(&client).await, [0, 0], "SET {become_other}");
        run(&client, reset).await;
        assert_eq!(count(&client).await, [0, 0], "{reset}: a superuser is another user, too");
        run(&client, &format!("SET {become_other} {first}")).await;
        assert_eq!(count(&client).await, [2, 1], "the same user");
        // Inside a transaction, and what another did there.
        run(&client, &format!("{reset}; BEGIN; SET LOCAL {become_other} {first}; INSERT INTO awa.ingest (kind) VALUES ('k')"))
            .await;
        run(&client, &format!("SET LOCAL {become_other} {second}")).await;
        let expected = if become_other == "ROLE" { "still a member" } else { "the superuser may" };
        assert_eq!(count(&client).await, [0, 0], "{expected}");
        run(&client, "COMMIT").await;
        assert_eq!(count(&client).await, [0, 0]);
    }
}

/// A function with the rights of its owner is part of its caller's session.
#[tokio::test(flavor = "multi_thread")]
async fn a_definers_statement_is_its_callers() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let role = db.role("caller").await;
    run(
        &client,
        &format!(
            "CREATE FUNCTION public.put() RETURNS void LANGUAGE sql SECURITY DEFINER SET work_mem = '8MB'
                 AS $$ INSERT INTO awa.ingest (kind) VALUES ('k'), ('k') $$;
             SELECT awa_ingest.grant_producer('{role}'); SET ROLE {role}; SELECT public.put()"
        ),
    )
    .await;
    assert_eq!(count(&client).await, [2, 1]);
    run(&client, "RESET ROLE").await;
    assert_eq!(count(&client).await, [0, 0]);
}

/// What is rolled back is forgotten, and what is kept is not, whatever savepoints are between.
#[tokio::test(flavor = "multi_thread")]
async fn savepoints_keep_what_they_keep() {
    let client = Db::embedded().await.connect().await;
    insert(&client).await;
    run(&client, "BEGIN; SAVEPOINT a; INSERT INTO awa.ingest (kind) VALUES ('k'); RELEASE a; SAVEPOINT b; ROLLBACK TO b; COMMIT")
        .await;
    assert_eq!(count(&client).await, [1, 1]);
    run(&client, "BEGIN; SAVEPOINT a; INSERT INTO awa.ingest (kind) VALUES ('k'); ROLLBACK TO a").await;
    assert_eq!(count(&client).await, [0, 0]);
    run(&client, "COMMIT").await;
    assert_eq!(count(&client).await, [0, 0]);
}

/// The jobs themselves are told where awa has them, by another function.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_forgotten_as_well() {
    let db = Db::awa().await;
    let (client, role) = (db.connect().await, db.role("other").await);
    run(&client, "SELECT awa_ingest.attach()").await;
    run(&client, &format!("SELECT awa_ingest.grant_producer('{role}')")).await;
    let jobs = async || client.query("SELECT FROM awa_ingest.last_ingest_jobs()", &[]).await.expect("last_ingest_jobs").len();
    for forget in ["DISCARD ALL", &format!("SET ROLE {role}"), &format!("SET SESSION AUTHORIZATION {role}")] {
        insert(&client).await;
        assert_eq!(jobs().await, 2, "before {forget}");
        run(&client, forget).await;
        assert_eq!(jobs().await, 0, "{forget}");
        run(&client, "RESET SESSION AUTHORIZATION; RESET ROLE").await;
    }
}
