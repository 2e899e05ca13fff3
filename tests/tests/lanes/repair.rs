//! `awa_ingest.repair_lane_sequence` repairs one sequence, and waits for nobody for long.

use crate::problems::{databases, enqueue, problem, problems, provision, repair, sequence};
use awa_ingest_tests::{Cluster, Db, Storage, Template, failure};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

async fn owner(client: &Client, storage: Storage, name: &str) -> String {
    let sql = "SELECT relowner::regrole::text FROM pg_class WHERE relname = $2 AND relnamespace = $1::text::regnamespace";
    client.query_one(sql, &[&storage.schema(), &name]).await.unwrap().get(0)
}

/// Gives the lane's enqueue sequence to a new role. Returns its name and the role's.
async fn damage(db: &Db, storage: Storage, client: &Client) -> (String, String) {
    provision(client, "mail").await.unwrap();
    let name = sequence(client, "enqueue", "mail").await;
    let role = db.role("first").await;
    if storage == Storage::Embedded {
        client.batch_execute(&format!("ALTER SEQUENCE awa_ingest.{name} OWNED BY NONE")).await.unwrap();
    }
    client.batch_execute(&format!("ALTER SEQUENCE {} OWNER TO {role}", storage.table(&name))).await.unwrap();
    (name, role)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sequence_is_repaired() {
    for (storage, db, owned_by) in databases().await {
        let client = db.connect().await;
        let (name, _) = damage(&db, storage, &client).await;
        provision(&client, "other").await.unwrap();
        let other = sequence(&client, "claim", "other").await;
        client.batch_execute(&format!("DROP SEQUENCE {}", storage.table(&other))).await.unwrap();
        assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "repaired");
        assert_eq!(owner(&client, storage, &name).await, owned_by);
        assert_eq!(problem(&client).await.sequence, other, "the other one is left");
        assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "nothing_to_do");
        assert_eq!(repair(&client, storage.schema(), &other).await.unwrap(), "repaired");
        assert_eq!(problems(&client).await, []);
        enqueue(&client, "mail").await.unwrap();
    }
}

/// While somebody else has the sequence in an open transaction, nothing changes, and nobody reads of an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_in_use_is_busy() {
    let cluster = Cluster::start(&[]);
    for (storage, template) in [(Storage::Embedded, Template::Embedded), (Storage::Attached, Template::Awa)] {
        let db = Db::on(cluster.clone(), template).await;
        let (producer, client) = (db.connect().await, db.connect().await);
        let (name, role) = damage(&db, storage, &client).await;
        producer.batch_execute("BEGIN").await.unwrap();
        enqueue(&producer, "mail").await.unwrap();
        let before = problem(&client).await;

        for setting in ["0", "1h", "20ms"] {
            client.batch_execute(&format!("SET lock_timeout = '{setting}'")).await.unwrap();
            let asked = Instant::now();
            assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "busy", "{setting}");
            assert!(asked.elapsed() < Duration::from_secs(2), "{setting}: {:?}", asked.elapsed());
            assert_eq!(client.query_one("SHOW lock_timeout", &[]).await.unwrap().get::<_, String>(0), setting);
        }
        client.batch_execute("SET lock_timeout = 0; BEGIN").await.unwrap();
        assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "busy");
        client.batch_execute("CREATE TABLE public.still_usable (); COMMIT").await.unwrap();
        assert_eq!((problem(&client).await, owner(&client, storage, &name).await), (before, role));

        producer.batch_execute("COMMIT").await.unwrap();
        assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "repaired");
        assert_eq!(problems(&client).await, []);
        assert!(!cluster.log().contains("ERROR"), "{}", cluster.log());
    }
}

/// A statement_timeout that is due during the wait ends the statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_timeout_goes_first() {
    let storage = Storage::Embedded;
    let db = storage.db().await;
    let (producer, client) = (db.connect().await, db.connect().await);
    let (name, _) = damage(&db, storage, &client).await;
    producer.batch_execute("BEGIN").await.unwrap();
    enqueue(&producer, "mail").await.unwrap();
    client.batch_execute("SET statement_timeout = '100ms'").await.unwrap();
    assert_eq!(failure(repair(&client, storage.schema(), &name).await).sqlstate, "57014");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_sequences_are_refused() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        provision(&client, "mail").await.unwrap();
        let name = sequence(&client, "enqueue", "mail").await;
        let setup =
            format!("CREATE SEQUENCE public.mine; CREATE SEQUENCE public.{name}; CREATE SEQUENCE {}", storage.table("mine"));
        client.batch_execute(&setup).await.unwrap();
        let odd = [
            ("public", "mine"),
            ("public", &name),
            (storage.schema(), "mine"),
            ("", ""),
            (storage.schema(), "queue_enqueue_heads"),
            ("no_such_schema", &name),
            (storage.schema(), "no_such_sequence"),
            (storage.schema(), "x\"; DROP TABLE y; --"),
        ];
        for (schema, sequence) in odd {
            let refused = failure(repair(&client, schema, sequence).await);
            assert_eq!(refused.sqlstate, "22023", "{schema}.{sequence}: {refused:?}");
        }
        for call in ["repair_lane_sequence(NULL, 'x')", "repair_lane_sequence('awa', NULL)"] {
            let refused = failure(client.query(&format!("SELECT awa_ingest.{call}"), &[]).await);
            assert_eq!(refused.sqlstate, "22023", "{call}: {refused:?}");
        }
        if storage == Storage::Attached {
            let canonical = "UPDATE awa.storage_transition_state SET state = 'canonical', current_engine = 'canonical'";
            client.batch_execute(canonical).await.unwrap();
            assert_eq!(failure(repair(&client, "awa", &name).await).sqlstate, "22023");
        }
    }
}

/// A head that names another sequence is no way to get at that.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_that_a_head_only_names_is_left_alone() {
    let db = Db::awa().await;
    let client = db.connect().await;
    provision(&client, "mail").await.unwrap();
    let name = sequence(&client, "enqueue", "mail").await;
    let role = db.role("other").await;
    let setup =
        format!("ALTER SEQUENCE awa.job_id_seq OWNER TO {role}; UPDATE awa.queue_enqueue_heads SET seq_name = 'job_id_seq'");
    client.batch_execute(&setup).await.unwrap();
    let found = problem(&client).await;
    assert_eq!((found.problem.as_str(), &found.sequence, found.statements.len()), ("missing", &name, 0), "{found:?}");
    assert!(found.able.is_empty() && found.detail.contains("job_id_seq"), "{found:?}");
    assert_eq!(repair(&client, "awa", "job_id_seq").await.unwrap(), "nothing_to_do");
    assert_eq!(failure(repair(&client, "awa", &name).await).sqlstate, "55000");
    assert_eq!(owner(&client, Storage::Attached, "job_id_seq").await, role);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_rights_count() {
    for (storage, db, _) in databases().await {
        let superuser = db.connect().await;
        let (name, first) = damage(&db, storage, &superuser).await;
        let role = db.role("stranger").await;
        let client = db.connect_as(&role).await;
        superuser.batch_execute(&format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}")).await.unwrap();
        assert_eq!(failure(repair(&client, storage.schema(), &name).await).sqlstate, "42501", "EXECUTE is not PUBLIC");
        superuser.execute("SELECT awa_ingest.grant_operator($1)", &[&role]).await.unwrap();
        let refused = failure(repair(&client, storage.schema(), &name).await);
        assert_eq!(refused.sqlstate, "42501", "{refused:?}");
        assert_eq!(owner(&superuser, storage, &name).await, first);
        // The sequence's owner may grant, but not give it away.
        superuser.batch_execute(&format!("GRANT {first} TO {role}")).await.unwrap();
        assert_eq!(failure(repair(&client, storage.schema(), &name).await).sqlstate, "42501");
        assert_eq!(owner(&superuser, storage, &name).await, first);
        assert_eq!(repair(&superuser, storage.schema(), &name).await.unwrap(), "repaired");
    }
}

/// To who has a privilege but not the right to pass it on, GRANT is a warning.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_does_nothing_is_no_repair() {
    for (storage, db, _) in databases().await {
        let superuser = db.connect().await;
        provision(&superuser, "mail").await.unwrap();
        let (role, reader) = (db.role("operator").await, db.role("reader").await);
        superuser.execute("SELECT awa_ingest.grant_operator($1)", &[&role]).await.unwrap();
        let grant = format!("GRANT SELECT ON {} TO {reader}", storage.table("queue_claim_heads"));
        superuser.batch_execute(&grant).await.unwrap();
        let found = problem(&superuser).await;
        let refused = failure(repair(&db.connect_as(&role).await, storage.schema(), &found.sequence).await);
        assert_eq!(refused.sqlstate, "42501", "{refused:?}");
        assert_eq!(problem(&superuser).await, found);
        assert_eq!(repair(&superuser, storage.schema(), &found.sequence).await.unwrap(), "repaired");
    }
}

/// What was repaired can be taken back with the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_belongs_to_its_transaction() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let (name, role) = damage(&db, storage, &client).await;
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "repaired");
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(owner(&client, storage, &name).await, role);
    }
}
