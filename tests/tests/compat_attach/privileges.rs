//! Whoever could call awa's function can call the replacement, with nothing granted on the extension.

use awa_ingest_tests::{Db, failure, rows};
use tokio_postgres::Client;

use crate::setup::{assert_lanes_are_whole, engine, insert, run, try_insert};

/// What awa's function needs on queue storage, each line by itself.
const NEEDED: [&str; 15] = [
    "USAGE, CREATE ON SCHEMA awa",
    "SELECT ON awa.storage_transition_state",
    "SELECT ON awa.runtime_storage_backends",
    "USAGE ON SEQUENCE awa.job_id_seq",
    "INSERT ON awa.job_unique_claims",
    "SELECT ON awa.queue_meta",
    "INSERT, SELECT ON awa.queue_lanes",
    "INSERT, SELECT, UPDATE ON awa.queue_enqueue_heads",
    "INSERT, SELECT, UPDATE ON awa.queue_claim_heads",
    "SELECT ON awa.queue_ring_state",
    "INSERT ON awa.ready_entries",
    "INSERT, SELECT ON awa.ready_segments",
    "INSERT ON awa.deferred_jobs",
    "USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA awa",
    "EXECUTE ON FUNCTION awa.insert_job_compat",
];

/// And on the canonical engine.
const NEEDED_BY_CANONICAL: [&str; 9] = [
    "USAGE ON SCHEMA awa",
    "SELECT ON awa.storage_transition_state",
    "SELECT ON awa.runtime_storage_backends",
    "SELECT, INSERT ON awa.jobs_hot",
    "SELECT, INSERT ON awa.scheduled_jobs",
    "USAGE ON SEQUENCE awa.jobs_id_seq",
    "INSERT, SELECT ON awa.job_unique_claims",
    "INSERT ON awa.admin_dirty_queue_marks",
    "INSERT ON awa.admin_dirty_kind_marks",
];

/// Every kind of call, on lanes named after `name` and on those of others.
async fn call(client: &Client, name: &str) {
    let calls = [
        format!("'k', 'lane of {name}'"),
        format!("'k', 'lane of {name}'"),
        format!("'k', 'sharded', p_ordering_key => '{name}', p_priority => 1::smallint"),
        format!("'k', 'lane of {name}', p_unique_key => '{name}', p_unique_states => '11111111'"),
        format!(
            "'k', p_state => 'scheduled', p_unique_key => '{name} later', p_unique_states => '11111111', p_tags => '{{t}}', p_metadata => '{{\"m\": 1}}'"
        ),
    ];
    for arguments in calls {
        insert(client, &arguments).await;
        run(client, "BEGIN; SAVEPOINT s").await;
        let again = format!("{arguments}, p_max_attempts => 3::smallint");
        if again.contains("unique") {
            assert_eq!(failure(try_insert(client, &again).await).sqlstate, "23505");
        } else {
            insert(client, &again).await;
        }
        run(client, "ROLLBACK TO s; COMMIT").await;
    }
}

async fn role(db: &Db, name: &str, needed: &[&str]) -> (String, Client) {
    let role = db.role(name).await;
    let superuser = db.connect().await;
    for grant in needed {
        run(&superuser, &format!("GRANT {grant} TO {role}")).await;
    }
    let client = db.connect_as(&role).await;
    (role, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_what_awa_needs_keeps_working() {
    for superusers_own in [true, false] {
        let db = if superusers_own { Db::awa().await } else { Db::awa_of_a_role().await.0 };
        let superuser = db.connect().await;
        run(&superuser, "REVOKE ALL ON FUNCTION awa.insert_job_compat FROM PUBLIC; INSERT INTO awa.queue_meta (queue, enqueue_shards) VALUES ('sharded', 4)").await;
        let (name, client) = role(&db, "app", &NEEDED).await;
        call(&client, "the original").await;
        run(&superuser, "SELECT awa_ingest.attach()").await;
        assert_nothing_of_the_extension(&superuser, &name).await;
        // Lanes that awa's function made for this role, and new ones.
        insert(&client, "'k', 'lane of the original'").await;
        call(&client, "the replacement").await;
        call(&db.connect_as(&name).await, "a new session").await;
        run(&superuser, "SELECT awa_ingest.detach()").await;
        call(&client, "the original again").await;
        assert_lanes_are_whole(&superuser, "awa", &name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_what_the_canonical_engine_needs_keeps_working() {
    let db = Db::awa().await;
    let superuser = db.connect().await;
    run(&superuser, &engine("canonical")).await;
    let (name, client) = role(&db, "app", &NEEDED_BY_CANONICAL).await;
    call(&client, "the original").await;
    run(&superuser, "SELECT awa_ingest.attach()").await;
    assert_nothing_of_the_extension(&superuser, &name).await;
    call(&client, "the replacement").await;
    call(&db.connect_as(&name).await, "a new session").await;
}

async fn assert_nothing_of_the_extension(superuser: &Client, role: &str) {
    let held = format!(
        "(SELECT has_schema_privilege('{role}', 'awa_ingest', 'USAGE') AS usage, has_table_privilege('{role}', 'awa.schema_version', 'SELECT') AS version,
            has_function_privilege('{role}', 'awa_ingest.provision_lane(text, smallint, smallint)', 'EXECUTE') AS lane)"
    );
    let nothing = serde_json::json!({"usage": false, "version": false, "lane": false});
    assert_eq!(rows(superuser, &held, &[]).await, [nothing]);
}

/// The list above is what is needed and not more: without any line of it, both refuse some call.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_privilege_both_refuse() {
    let calls = [
        "'k', 'known'",
        "'k', 'known', p_ordering_key => 'a', p_unique_key => 'free', p_unique_states => '11111111'",
        "'k', 'known', p_state => 'scheduled'",
    ];
    for missing in [
        "USAGE ON SCHEMA awa",
        "INSERT ON awa.job_unique_claims",
        "INSERT ON awa.ready_entries",
        "INSERT ON awa.deferred_jobs",
        "EXECUTE ON FUNCTION awa.insert_job_compat",
    ] {
        let db = Db::awa().await;
        let superuser = db.connect().await;
        run(&superuser, "REVOKE ALL ON FUNCTION awa.insert_job_compat FROM PUBLIC").await;
        let (name, client) = role(&db, "app", &NEEDED).await;
        insert(&client, "'k', 'known'").await;
        run(&superuser, &format!("REVOKE {missing} FROM {name}")).await;
        let mut refusals = Vec::new();
        for attach in ["", "SELECT awa_ingest.attach()"] {
            run(&superuser, attach).await;
            let mut refused = Vec::new();
            for arguments in calls {
                run(&client, "BEGIN").await;
                let answer = try_insert(&client, arguments).await;
                refused.push(answer.is_err().then(|| failure(answer).sqlstate));
                run(&client, "ROLLBACK").await;
            }
            refusals.push(refused);
        }
        assert_eq!(refusals[1], refusals[0], "without {missing}");
        assert!(refusals[0].contains(&Some("42501".to_owned())), "without {missing}: {refusals:?}");
    }
}

/// A producer by the extension's grant calls the function, and the companions that take jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_by_grant() {
    for superusers_own in [true, false] {
        let db = if superusers_own { Db::awa().await } else { Db::awa_of_a_role().await.0 };
        let superuser = db.connect().await;
        run(&superuser, "SELECT awa_ingest.attach()").await;
        let producer = db.role("producer").await;
        run(&superuser, &format!("SELECT awa_ingest.grant_producer('{producer}')")).await;
        let client = db.connect_as(&producer).await;
        run(&client, "SELECT awa_ingest.insert_jobs_compat_batch('{a,b}'); SELECT awa_ingest.insert_many_skip_unique_conflicts('[{\"kind\": \"c\"}]')").await;
        insert(&client, "'k'").await;
        insert(&client, "'k', 'new lane'").await;
        assert_eq!(rows(&superuser, "(SELECT FROM awa.ready_entries)", &[]).await.len(), 5);
        assert_eq!(failure(client.batch_execute("SELECT awa_ingest.attach()").await).sqlstate, "42501");
        assert_eq!(failure(client.batch_execute("SELECT awa_ingest.adopt()").await).sqlstate, "42501");
    }
}

/// Row security of the target tables is honoured or refused, as by awa's function, never bypassed.
#[tokio::test(flavor = "multi_thread")]
async fn row_security_is_not_bypassed() {
    for attach in ["", "SELECT awa_ingest.attach()"] {
        let db = Db::awa().await;
        let superuser = db.connect().await;
        run(&superuser, attach).await;
        let (_, client) = role(&db, "app", &NEEDED).await;
        insert(&client, "'k', 'mine'").await;
        let policy = "ALTER TABLE awa.deferred_jobs ENABLE ROW LEVEL SECURITY; CREATE POLICY mine ON awa.deferred_jobs FOR INSERT WITH CHECK (queue = 'mine')";
        run(&superuser, policy).await;
        let refused = failure(try_insert(&client, "'k', 'yours', p_state => 'scheduled'").await);
        assert_eq!(refused.sqlstate, "42501", "{attach}: {refused:?}");
        assert!(rows(&superuser, "awa.deferred_jobs", &[]).await.is_empty(), "{attach}");
    }
}
