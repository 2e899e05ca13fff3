//! The engine is looked up on every call: one backend follows it wherever it goes, and nothing it knew is used again.

use awa_ingest_tests::{failure, rows};
use awa_model::{QueueStorage, QueueStorageConfig};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::setup::{attached, engine, run};

/// Every table a job can be in, with the jobs that are there.
async fn places(client: &Client, schemas: &[&str]) -> Vec<(String, Vec<Value>)> {
    let mut tables = vec!["awa.jobs_hot".to_owned(), "awa.scheduled_jobs".to_owned()];
    tables.extend(schemas.iter().flat_map(|schema| [format!("{schema}.ready_entries"), format!("{schema}.deferred_jobs")]));
    let mut places = Vec::new();
    for table in tables {
        let args = format!("(SELECT args FROM {table})");
        let found = rows(client, &args, &[]).await.into_iter().map(|row| row["args"].clone()).collect();
        places.push((table, found));
    }
    places
}

/// Where a job of its own lands that `session` inserts with a statement that it prepared once.
struct Probe<'a> {
    session: &'a Client,
    statement: tokio_postgres::Statement,
    number: i64,
}

impl<'a> Probe<'a> {
    async fn new(session: &'a Client) -> Self {
        let sql = "SELECT id FROM awa.insert_job_compat('k', 'q' || pg_backend_pid(), $1, $2::text::awa.job_state)";
        Self { session, statement: session.prepare(sql).await.expect(sql), number: 0 }
    }

    async fn lands_in(&mut self, state: &str, schemas: &[&str]) -> String {
        self.number += 1;
        self.session.query_one(&self.statement, &[&json!(self.number), &state]).await.expect(state);
        let places = places(self.session, schemas).await;
        let mut found = places.into_iter().filter(|(_, jobs)| jobs.contains(&json!(self.number)));
        let (table, _) = found.next().expect("the job is somewhere");
        assert!(found.next().is_none(), "and nowhere else");
        table
    }

    async fn expect(&mut self, state: &str) {
        let [ready, deferred] = match state {
            "canonical" | "prepared" => ["awa.jobs_hot", "awa.scheduled_jobs"],
            _ => ["awa.ready_entries", "awa.deferred_jobs"],
        };
        assert_eq!(self.lands_in("available", &["awa"]).await, ready, "{state}");
        assert_eq!(self.lands_in("scheduled", &["awa"]).await, deferred, "{state}");
    }
}

const STATES: [&str; 8] =
    ["active", "canonical", "active", "prepared", "mixed_transition", "canonical", "mixed_transition", "prepared"];

#[tokio::test(flavor = "multi_thread")]
async fn every_flip_is_followed() {
    let session = attached().await.connect().await;
    let mut probe = Probe::new(&session).await;
    for state in STATES {
        run(&session, &engine(state)).await;
        probe.expect(state).await;
        probe.expect(state).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flips_within_a_transaction_and_their_rollback() {
    let session = attached().await.connect().await;
    let mut probe = Probe::new(&session).await;
    for end in ["COMMIT", "ROLLBACK", "COMMIT"] {
        run(&session, &engine("active")).await;
        run(&session, "BEGIN").await;
        probe.expect("active").await;
        for state in STATES {
            run(&session, &format!("SAVEPOINT before; {}", engine(state))).await;
            probe.expect(state).await;
            run(&session, "ROLLBACK TO before").await;
            probe.expect("active").await;
        }
        run(&session, &engine("canonical")).await;
        probe.expect("canonical").await;
        run(&session, end).await;
        probe.expect(if end == "COMMIT" { "canonical" } else { "active" }).await;
    }
}

/// A statement has one engine, that of its snapshot, whatever functions it calls do meanwhile; the next one has the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_has_one_engine() {
    let session = attached().await.connect().await;
    let flip = format!("CREATE FUNCTION flip() RETURNS int LANGUAGE plpgsql AS $$ BEGIN {}; RETURN 1; END $$", engine("canonical"));
    run(&session, &flip).await;
    let call = "LATERAL awa.insert_job_compat('k', p_args => to_jsonb(n)) AS job";
    let sql =
        format!("SELECT job.id FROM generate_series(1, 6) AS n, LATERAL (SELECT CASE WHEN n = 4 THEN flip() END) AS flip, {call}");
    assert_eq!(session.query(&sql, &[]).await.unwrap().len(), 6);
    let (one, other): (Vec<_>, Vec<_>) =
        places(&session, &["awa"]).await.into_iter().partition(|(table, _)| table == "awa.ready_entries");
    assert_eq!(one[0].1.len(), 6, "{other:?}");
    Probe { number: 100, ..Probe::new(&session).await }.expect("canonical").await;
}

/// What others commit counts for the next statement at READ COMMITTED, and not for a transaction with one snapshot. Neither commits
/// what it enqueued where nobody works it any more.
#[tokio::test(flavor = "multi_thread")]
async fn the_callers_snapshot_decides() {
    let db = attached().await;
    let other = db.connect().await;
    let (committed, repeatable) = (db.connect().await, db.connect().await);
    let (mut each, mut one) = (Probe::new(&committed).await, Probe::new(&repeatable).await);
    one.number = 1000;
    run(&committed, "BEGIN").await;
    run(&repeatable, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    for probe in [&mut each, &mut one] {
        probe.expect("active").await;
    }
    run(&other, &engine("canonical")).await;
    each.expect("canonical").await;
    one.expect("active").await;
    for session in [&committed, &repeatable] {
        assert_eq!(failure(session.batch_execute("COMMIT").await).sqlstate, "40001");
    }
    one.expect("canonical").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_schemas_are_followed() {
    let db = attached().await;
    let (session, pool) = (db.connect().await, db.pool().await);
    let mut probe = Probe::new(&session).await;
    let mut known = vec!["awa"];
    for schema in ["one", "two", "one", "awa", "two"] {
        let config = QueueStorageConfig { schema: schema.into(), ..Default::default() };
        QueueStorage::new(config).unwrap().install(&pool).await.unwrap();
        if !known.contains(&schema) {
            known.push(schema);
        }
        assert_eq!(probe.lands_in("available", &known).await, format!("{schema}.ready_entries"));
        assert_eq!(probe.lands_in("retryable", &known).await, format!("{schema}.deferred_jobs"));
        run(&session, &format!("BEGIN; {}", engine("canonical"))).await;
        assert_eq!(probe.lands_in("available", &known).await, "awa.jobs_hot");
        run(&session, "ROLLBACK").await;
        assert_eq!(probe.lands_in("available", &known).await, format!("{schema}.ready_entries"));
    }
}

/// A storage that was taken away and made anew under the same name is another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_was_made_anew() {
    let db = attached().await;
    let (session, pool) = (db.connect().await, db.pool().await);
    let mut probe = Probe::new(&session).await;
    let store = QueueStorage::new(QueueStorageConfig { schema: "anew".into(), ..Default::default() }).unwrap();
    for _ in 0..3 {
        run(&session, "DROP SCHEMA IF EXISTS anew CASCADE").await;
        store.install(&pool).await.unwrap();
        for _ in 0..2 {
            assert_eq!(probe.lands_in("available", &["anew"]).await, "anew.ready_entries");
        }
        let positions = rows(&session, "(SELECT lane_seq FROM anew.ready_entries)", &[]).await;
        assert_eq!(positions, [json!({"lane_seq": 1}), json!({"lane_seq": 2})]);
    }
}
