//! Row security and triggers on the storage's tables apply to what is enqueued, although rows are written straight into a partition
//! where nobody asked for more.

use awa_ingest_tests::{Db, Failure, Storage, failure, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// A producer without more, and the superuser.
async fn clients(db: &Db) -> (Client, Client) {
    let (role, superuser) = (db.role("producer").await, db.connect().await);
    superuser.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect("grant_producer");
    (db.connect_as(&role).await, superuser)
}

async fn try_enqueue(client: &Client, batch: &Value) -> Result<u64, tokio_postgres::Error> {
    client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[batch]).await
}

async fn refused(client: &Client, batch: &Value) -> Failure {
    failure(try_enqueue(client, batch).await)
}

async fn count(client: &Client, table: &str) -> usize {
    rows(client, table, &[]).await.len()
}

const READY: &str = r#"[{"kind": "allowed"}, {"kind": "forbidden"}]"#;
const DEFERRED: &str = r#"[{"kind": "allowed", "run_at": "2030-01-01"}, {"kind": "forbidden", "run_at": "2030-01-01"}]"#;
const CLAIMING: &str = r#"[{"kind": "a", "unique_key": "00", "unique_states": "11111111"},
                           {"kind": "b", "unique_key": "ff", "unique_states": "11111111"}]"#;

/// A policy on a table, and a batch of two jobs of which it allows the first.
const POLICIES: [(&str, &str, &str); 4] = [
    ("ready_entries", "kind = 'allowed'", READY),
    ("ready_segments", "queue <> 'secret'", r#"[{"kind": "k"}, {"kind": "k", "queue": "secret"}]"#),
    ("deferred_jobs", "kind = 'allowed'", DEFERRED),
    ("job_unique_claims", r"unique_key <> '\xff'", CLAIMING),
];

#[tokio::test(flavor = "multi_thread")]
async fn policies_are_honoured() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (producer, superuser) = clients(&db).await;
        for (table, check, batch) in POLICIES {
            let table = storage.table(table);
            let batch: Value = serde_json::from_str(batch).expect(batch);
            let allowed = json!([batch[0]]);
            // Once before, so that plans and what is remembered of the storage are there.
            try_enqueue(&producer, &json!([{"kind": "allowed", "queue": &table}])).await.expect(&table);

            let jobs = [storage.table("ready_entries"), storage.table("deferred_jobs"), storage.table("job_unique_claims")];
            let before = [count(&superuser, &jobs[0]).await, count(&superuser, &jobs[1]).await, count(&superuser, &jobs[2]).await];
            superuser.batch_execute(&format!("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")).await.unwrap();
            assert_eq!(refused(&producer, &allowed).await.sqlstate, "42501", "no policy is no permission: {table}");
            let policy = format!(
                "CREATE POLICY read ON {table} FOR SELECT USING (true); CREATE POLICY write ON {table} FOR INSERT WITH CHECK ({check})"
            );
            superuser.batch_execute(&policy).await.expect(&policy);
            let refusal = refused(&producer, &batch).await;
            assert_eq!(refusal.sqlstate, "42501", "{table}: {refusal:?}");
            assert_eq!(
                before,
                [count(&superuser, &jobs[0]).await, count(&superuser, &jobs[1]).await, count(&superuser, &jobs[2]).await],
                "{table}"
            );

            try_enqueue(&producer, &allowed).await.unwrap_or_else(|error| panic!("{table} allows the first: {error:?}"));
            try_enqueue(&superuser, &json!([batch[1]])).await.expect("not for superusers");
            superuser
                .batch_execute(&format!(
                    "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY; DROP POLICY read ON {table}; DROP POLICY write ON {table}"
                ))
                .await
                .unwrap();
        }
    }
}

/// A log that triggers write to, and triggers of every level on `table`.
fn triggers(table: &str) -> String {
    format!(
        "CREATE TABLE log (what text); GRANT INSERT ON log TO PUBLIC;
         CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.log VALUES (format('%s %s %s', tg_when, tg_op, tg_level)); RETURN NEW; END $$;
         CREATE FUNCTION log_rows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.log SELECT format('saw %s', count(*)) FROM new_rows; RETURN NULL; END $$;
         CREATE TRIGGER before_row BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION log();
         CREATE TRIGGER after_row AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION log();
         CREATE TRIGGER before_statement BEFORE INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION log();
         CREATE TRIGGER after_statement AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows
             FOR EACH STATEMENT EXECUTE FUNCTION log_rows()"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn triggers_fire() {
    let two = |extra: Value| {
        let mut jobs = json!([{"kind": "k", "priority": 1}, {"kind": "l", "priority": 2}]);
        for job in jobs.as_array_mut().expect("an array") {
            job.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        }
        jobs
    };
    let batches = [
        ("ready_entries", two(json!({}))),
        ("ready_segments", two(json!({}))),
        ("deferred_jobs", two(json!({"run_at": "2030-01-01"}))),
        ("job_unique_claims", two(json!({"unique": true}))),
    ];
    for storage in Storage::BOTH {
        for (table, batch) in &batches {
            let db = storage.db().await;
            let (producer, superuser) = clients(&db).await;
            try_enqueue(&producer, &json!([{"kind": "before"}])).await.expect("enqueue");
            superuser.batch_execute(&triggers(&storage.table(table))).await.unwrap();
            try_enqueue(&producer, batch).await.expect(table);
            let log = rows(&superuser, "(SELECT what, count(*) FROM public.log GROUP BY what)", &[]).await;
            let expected = [
                json!({"what": "AFTER INSERT ROW", "count": 2}),
                json!({"what": "BEFORE INSERT ROW", "count": 2}),
                json!({"what": "BEFORE INSERT STATEMENT", "count": 1}),
                json!({"what": "saw 2", "count": 1}),
            ];
            awa_ingest_tests::assert_same_rows(&format!("{table}, {storage:?}"), &expected, &log);
        }
    }
}

/// A trigger that refuses a row refuses the batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_can_refuse() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (producer, superuser) = clients(&db).await;
        let refuse = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RAISE 'no %', NEW.kind USING ERRCODE = '23514', CONSTRAINT = 'no_bad_kinds'; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON {} FOR EACH ROW WHEN (NEW.kind = 'bad') EXECUTE FUNCTION refuse()",
            storage.table("ready_entries")
        );
        superuser.batch_execute(&refuse).await.unwrap();
        let batch = json!([{"kind": "good", "unique": true}, {"kind": "bad"}, {"kind": "later", "run_at": "2030-01-01"}]);
        let refusal = refused(&producer, &batch).await;
        assert_eq!((refusal.sqlstate.as_str(), refusal.constraint.as_str()), ("23514", "no_bad_kinds"));
        for table in ["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims"] {
            assert_eq!(count(&superuser, &storage.table(table)).await, 0, "{table}, {storage:?}");
        }
        try_enqueue(&producer, &json!([batch[0]])).await.expect("the good one");
    }
}
