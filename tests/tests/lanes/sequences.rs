//! Lane sequences that a role cannot use are listed, with statements that, run as printed, change that.

use crate::problems::{Problem, databases, enqueue, fix_as_printed, problem, problems, provision, sequence};
use awa_ingest_tests::{Db, Storage, assert_lanes_intact, failure, jobs, rows};
use awa_model::{InsertOpts, InsertParams, QueueStorage, QueueStorageConfig};
use serde_json::json;
use tokio_postgres::Client;

async fn producer(db: &Db, name: &str) -> (String, Client) {
    let role = db.role(name).await;
    db.connect().await.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect("grant_producer");
    let client = db.connect_as(&role).await;
    (role, client)
}

/// What the extension makes is never listed, whoever came first.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_of_the_extension_work_for_every_role() {
    for (storage, db, _) in databases().await {
        let superuser = db.connect().await;
        let (_, first) = producer(&db, "first").await;
        let (_, second) = producer(&db, "second").await;
        enqueue(&first, "first").await.unwrap();
        enqueue(&superuser, "superuser").await.unwrap();
        assert_eq!(problems(&superuser).await, [], "{storage:?}");
        for client in [&first, &second, &superuser] {
            for queue in ["first", "superuser", "second"] {
                enqueue(client, queue).await.expect(queue);
            }
        }
        assert_eq!(problems(&superuser).await, [], "{storage:?}");
    }
}

/// What awa's runtime roles have, as its documentation grants it.
async fn runtime(db: &Db, name: &str) -> String {
    let role = db.role(name).await;
    let grants = "GRANT USAGE, CREATE ON SCHEMA awa TO {}; GRANT ALL ON ALL TABLES IN SCHEMA awa TO {};
        GRANT ALL ON ALL SEQUENCES IN SCHEMA awa TO {}";
    db.connect().await.batch_execute(&grants.replace("{}", &role)).await.unwrap();
    role
}

async fn enqueue_as_awa(db: &Db, role: &str, queue: &str) -> Result<usize, awa_model::AwaError> {
    let pool = sqlx::PgPool::connect(&db.url_of(role)).await.unwrap();
    let store = QueueStorage::new(QueueStorageConfig::default()).expect("awa's default storage");
    let job: InsertParams = jobs::job_with("k", json!({}), InsertOpts { queue: queue.into(), ..Default::default() });
    let result = store.enqueue_params_batch(&pool, &[job]).await;
    pool.close().await;
    result
}

/// awa's own producers make lanes that belong to whoever came first.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_of_awas_producers_are_repaired() {
    let (db, owner) = Db::awa_of_a_role().await;
    let superuser = db.connect().await;
    let (first, second) = (runtime(&db, "first").await, runtime(&db, "second").await);
    let dba = db.role("dba").await;
    superuser.batch_execute(&format!("GRANT {owner}, {first} TO {dba}")).await.unwrap();
    enqueue_as_awa(&db, &first, "mail").await.expect("who makes the lane can use it");
    let refused = format!("{:?}", enqueue_as_awa(&db, &second, "mail").await);
    assert!(refused.contains("permission denied for sequence"), "{refused}");

    let found = problems(&superuser).await;
    assert_eq!(found.len(), 2, "{found:#?}");
    for (problem, side) in found.iter().zip(["enqueue", "claim"]) {
        assert_eq!((problem.schema.as_str(), problem.problem.as_str()), ("awa", "wrong_owner"));
        assert_eq!(problem.sequence, sequence(&superuser, side, "mail").await);
        for part in ["queue \"mail\", priority 2, shard 0", &format!("\"{first}\""), &format!("\"{owner}\""), &second] {
            assert!(problem.detail.contains(part), "{part} in {}", problem.detail);
        }
        assert_eq!(problem.able, ["postgres".to_owned(), dba.clone()], "not who owns one of both only");
        fix_as_printed(&db, problem).await;
    }
    assert_eq!(problems(&superuser).await, []);
    for role in [&first, &second] {
        enqueue_as_awa(&db, role, "mail").await.expect(role);
    }
    assert_lanes_intact(&superuser, "awa", "repaired").await;
}

/// A new owner who may not create in the schema cannot be given anything but by a superuser; one who is a member without the rights
/// cannot run what follows.
#[tokio::test(flavor = "multi_thread")]
async fn able_roles_follow_the_servers_rules() {
    let (db, owner) = Db::awa_of_a_role().await;
    let superuser = db.connect().await;
    let (stranger, heir) = (db.role("stranger").await, db.role("heir").await);
    provision(&superuser, "mail").await.unwrap();
    let name = sequence(&superuser, "claim", "mail").await;
    let setup = format!(
        "ALTER SEQUENCE awa.{name} OWNER TO {stranger}; GRANT {stranger} TO {owner}; ALTER ROLE {heir} NOINHERIT; GRANT {owner} TO {heir}"
    );
    superuser.batch_execute(&setup).await.unwrap();
    let found = problem(&superuser).await;
    assert_eq!(found.able, ["postgres".to_owned(), owner.clone()], "{heir} inherits nothing");
    let schema = format!("ALTER SCHEMA awa OWNER TO postgres; GRANT USAGE ON SCHEMA awa TO {owner}");
    superuser.batch_execute(&schema).await.unwrap();
    let mixed = failure(superuser.query("SELECT awa_ingest.lane_sequence_problems()", &[]).await);
    assert_eq!(mixed.sqlstate, "55000", "nothing is read where owners differ: {mixed:?}");
    let as_owner = failure(db.connect_as(&owner).await.batch_execute(&found.statements[0]).await);
    assert_eq!(as_owner.sqlstate, "42501", "the list is right: {as_owner:?}");
    superuser.batch_execute(&format!("ALTER SCHEMA awa OWNER TO {owner}")).await.unwrap();
    fix_as_printed(&db, &found).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_privileges_are_listed_and_granted() {
    for (storage, db, owner) in databases().await {
        let superuser = db.connect().await;
        let (role, client) = producer(&db, "producer").await;
        let reader = db.role("reader").await;
        enqueue(&client, "mail").await.unwrap();
        let (enqueues, claims) = (sequence(&superuser, "enqueue", "mail").await, sequence(&superuser, "claim", "mail").await);
        for privilege in ["USAGE", "UPDATE", "SELECT", "ALL"] {
            let revoke = format!("REVOKE {privilege} ON SEQUENCE {} FROM {role}", storage.table(&enqueues));
            superuser.batch_execute(&revoke).await.unwrap();
            let found = problem(&superuser).await;
            assert_eq!((found.problem.as_str(), &found.sequence), ("missing_privilege", &enqueues), "{privilege}");
            assert!(found.detail.ends_with(&format!("\"{role}\" lacks SELECT, USAGE, UPDATE")), "{found:?}");
            assert!(found.able.contains(&owner) && !found.able.contains(&role), "{found:?}");
            fix_as_printed(&db, &found).await;
            enqueue(&client, "mail").await.expect(privilege);
        }
        let read = format!("GRANT SELECT ON {} TO {reader}", storage.table("queue_claim_heads"));
        superuser.batch_execute(&read).await.unwrap();
        let found = problem(&superuser).await;
        assert_eq!(found.sequence, claims);
        assert!(found.detail.ends_with(&format!("\"{reader}\" lacks SELECT")), "{found:?}");
        fix_as_printed(&db, &found).await;
    }
}

/// Who has the right from elsewhere lacks nothing; and PUBLIC is no role.
#[tokio::test(flavor = "multi_thread")]
async fn public_is_granted_to_as_well() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let superuser = db.connect().await;
        let role = db.role("anyone").await;
        provision(&superuser, "mail").await.unwrap();
        let heads = storage.table("queue_enqueue_heads");
        superuser.batch_execute(&format!("GRANT INSERT ON {heads} TO PUBLIC")).await.unwrap();
        let found = problem(&superuser).await;
        assert!(found.detail.ends_with("PUBLIC lacks SELECT, USAGE, UPDATE"), "{found:?}");
        fix_as_printed(&db, &found).await;
        let may = "SELECT has_sequence_privilege($1::text, $2::text, 'UPDATE')";
        let name = storage.table(&found.sequence);
        assert!(superuser.query_one(may, &[&role, &name]).await.unwrap().get::<_, bool>(0));
        superuser.batch_execute(&format!("GRANT INSERT ON {heads} TO {role}")).await.unwrap();
        assert_eq!(problems(&superuser).await, [], "{role} can use the sequence, as everybody");
        superuser.batch_execute(&format!("REVOKE ALL ON SEQUENCE {name} FROM PUBLIC")).await.unwrap();
        let found = problem(&superuser).await;
        assert!(found.detail.contains("PUBLIC lacks") && found.detail.contains(&format!("\"{role}\" lacks")), "{found:?}");
        fix_as_printed(&db, &found).await;
    }
}

/// Heads without any grant imply nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_table_without_grants_implies_none() {
    let (db, owner) = Db::awa_of_a_role().await;
    let superuser = db.connect().await;
    let bare = "SELECT relacl IS NULL FROM pg_class WHERE oid = 'awa.queue_enqueue_heads'::regclass";
    assert!(superuser.query_one(bare, &[]).await.unwrap().get::<_, bool>(0));
    provision(&superuser, "mail").await.unwrap();
    assert_eq!(problems(&superuser).await, []);
    let name = sequence(&superuser, "enqueue", "mail").await;
    superuser.batch_execute(&format!("ALTER SEQUENCE awa.{name} OWNER TO postgres")).await.unwrap();
    let found = problem(&superuser).await;
    assert_eq!(found.statements, [format!("ALTER SEQUENCE awa.{name} OWNER TO {owner}")]);
    assert_eq!(found.able, ["postgres"]);
    fix_as_printed(&db, &found).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_quoted() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let superuser = db.connect().await;
        for (number, queue) in ["Quo'te\"d", "%I %s $1", "back\\slash", "ünïcode 🐘", "a:1:2", ""].into_iter().enumerate() {
            let role = format!("Role \"{number}\" of {}", db.name());
            let quoted = format!("\"{}\"", role.replace('"', "\"\""));
            superuser.batch_execute(&format!("CREATE ROLE {quoted} LOGIN")).await.unwrap();
            superuser.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.unwrap();
            provision(&superuser, queue).await.expect(queue);
            let name = sequence(&superuser, "enqueue", queue).await;
            let revoke = format!("REVOKE ALL ON SEQUENCE {} FROM {quoted}", storage.table(&name));
            superuser.batch_execute(&revoke).await.unwrap();
            let found = problem(&superuser).await;
            assert!(found.detail.starts_with(&format!("queue \"{queue}\", priority 2")), "{found:?}");
            fix_as_printed(&db, &found).await;
            superuser.batch_execute(&format!("DROP SEQUENCE {}", storage.table(&name))).await.unwrap();
            let found = problem(&superuser).await;
            assert_eq!((found.problem.as_str(), &found.sequence), ("missing", &name), "{queue}");
            fix_as_printed(&db, &found).await;
            superuser.batch_execute(&format!("DROP OWNED BY {quoted}")).await.unwrap();
        }
    }
}

/// Lanes are the active storage's; the canonical engine has none.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_active_storage_is_looked_at() {
    let db = Db::awa().await;
    let client = db.connect().await;
    provision(&client, "mail").await.unwrap();
    let name = sequence(&client, "enqueue", "mail").await;
    client.batch_execute(&format!("DROP SEQUENCE awa.{name}")).await.unwrap();
    assert_eq!(problems(&client).await.len(), 1);
    client.batch_execute("SELECT awa.install_queue_storage_substrate('elsewhere')").await.unwrap();
    let other = "UPDATE awa.storage_transition_state SET details = '{\"schema\": \"elsewhere\"}'";
    client.batch_execute(other).await.unwrap();
    assert_eq!(problems(&client).await, []);
    provision(&client, "mail").await.unwrap();
    client.batch_execute(&format!("DROP SEQUENCE elsewhere.{name}")).await.unwrap();
    let found = problem(&client).await;
    assert_eq!(found.schema, "elsewhere");
    fix_as_printed(&db, &found).await;
    client
        .batch_execute("UPDATE awa.storage_transition_state SET state = 'canonical', current_engine = 'canonical'")
        .await
        .unwrap();
    assert_eq!(problems(&client).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_the_lanes_gets_no_list() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let superuser = db.connect().await;
        let role = db.role("nobody").await;
        let client = db.connect_as(&role).await;
        let call = "SELECT * FROM awa_ingest.lane_sequence_problems()";
        superuser.batch_execute(&format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}")).await.unwrap();
        assert_eq!(failure(client.query(call, &[]).await).sqlstate, "42501", "EXECUTE is not PUBLIC");
        superuser.batch_execute(&format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA awa_ingest TO {role}")).await.unwrap();
        assert_eq!(failure(client.query(call, &[]).await).sqlstate, "42501", "its rights are the caller's");
        let none: [Problem; 0] = [];
        assert_eq!(problems(&superuser).await, none);
        assert!(rows(&superuser, &storage.table("queue_enqueue_heads"), &[]).await.is_empty());
    }
}
