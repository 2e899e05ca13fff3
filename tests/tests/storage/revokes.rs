//! `awa_ingest.revoke_producer` and `revoke_operator` take back what was granted, and nothing else.

use awa_ingest_tests::{Db, Storage, failure, rows};
use serde_json::Value;
use tokio_postgres::Client;

/// Every privilege that a role holds by itself, on relations, columns, functions, schemas and by default.
async fn held(client: &Client, role: &str) -> Vec<Value> {
    let held = format!("(SELECT * FROM (
        SELECT c.oid::regclass::text AS object, a.privilege_type, a.is_grantable, a.grantee FROM pg_class AS c, aclexplode(c.relacl) AS a
        UNION ALL
        SELECT format('%s.%s', t.attrelid::regclass, t.attname), a.privilege_type, a.is_grantable, a.grantee
          FROM pg_attribute AS t, aclexplode(t.attacl) AS a
        UNION ALL
        SELECT p.oid::regprocedure::text, a.privilege_type, a.is_grantable, a.grantee FROM pg_proc AS p, aclexplode(p.proacl) AS a
        UNION ALL
        SELECT n.nspname, a.privilege_type, a.is_grantable, a.grantee FROM pg_namespace AS n, aclexplode(n.nspacl) AS a
        UNION ALL
        SELECT format('default %s', d.defaclobjtype), a.privilege_type, a.is_grantable, a.grantee FROM pg_default_acl AS d, aclexplode(d.defaclacl) AS a
      ) AS acl WHERE grantee = (SELECT oid FROM pg_roles WHERE rolname = '{role}'))");
    rows(client, &held, &[]).await
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

const LANES: &str =
    "SELECT awa.enqueue('k', queue => 'before'); SELECT awa_ingest.provision_lane('before', 1::smallint, 0::smallint)";

/// One storage each, and one that awa's takes the place of after the grant.
async fn databases() -> Vec<(&'static str, Db)> {
    let (of_a_role, _) = Db::awa_of_a_role().await;
    let canonical = Db::of(awa_ingest_tests::Template::AwaCanonical).await;
    run(&canonical.connect().await, "CREATE EXTENSION awa_ingest").await;
    vec![
        ("embedded", Storage::Embedded.db().await),
        ("attached", Storage::Attached.db().await),
        ("of a role", of_a_role),
        ("canonical", canonical),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_has_what_it_had_before_the_grant() {
    for (name, db) in databases().await {
        let client = db.connect().await;
        if name != "canonical" {
            run(&client, LANES).await;
        }
        if name == "attached" {
            run(&client, "SELECT awa_ingest.attach()").await;
        }
        let role = db.role("role").await;
        // Given otherwise, on objects that the grants are about as well.
        run(
            &client,
            &format!(
                "GRANT CREATE ON SCHEMA awa TO {role}; GRANT UPDATE ON awa.ingest TO {role};
                 CREATE FOREIGN TABLE public.mine (kind text) SERVER awa_ingest; GRANT INSERT ON public.mine TO {role}"
            ),
        )
        .await;
        let before = held(&client, &role).await;
        for kind in ["producer", "operator"] {
            run(&client, &format!("SELECT awa_ingest.grant_{kind}('{role}')")).await;
            if name != "canonical" {
                run(&client, &format!("SELECT awa_ingest.provision_lane('after {kind}', 1::smallint, 1::smallint)")).await;
            }
            assert_ne!(held(&client, &role).await, before);
            run(&client, &format!("SELECT awa_ingest.revoke_{kind}('{role}')")).await;
            assert_eq!(held(&client, &role).await, before, "{kind}, {name}");
            // Where there is nothing to take back, nothing happens.
            run(&client, &format!("SELECT awa_ingest.revoke_{kind}('{role}')")).await;
        }
        let refused = failure(client.batch_execute("SELECT awa_ingest.revoke_producer('no_such_role')").await);
        assert_eq!(refused.sqlstate, "42704");
    }
}

/// Of what both grants give, the one that stays keeps all.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_grant_stays() {
    for (name, db) in databases().await {
        let client = db.connect().await;
        if name != "canonical" {
            run(&client, LANES).await;
        }
        let role = db.role("role").await;
        for (kind, other) in [("producer", "operator"), ("operator", "producer")] {
            run(&client, &format!("SELECT awa_ingest.grant_{other}('{role}')")).await;
            let alone = held(&client, &role).await;
            run(&client, &format!("SELECT awa_ingest.grant_{kind}('{role}'); SELECT awa_ingest.revoke_{kind}('{role}')")).await;
            assert_eq!(held(&client, &role).await, alone, "{kind} beside {other}, {name}");
            run(&client, &format!("SELECT awa_ingest.revoke_{other}('{role}')")).await;
            assert_eq!(held(&client, &role).await, Vec::<Value>::new(), "{other} alone, {name}");
        }
        run(&client, &format!("DROP ROLE {role}")).await;
    }
}

/// A role that was given the embedded storage and awa's loses both.
#[tokio::test(flavor = "multi_thread")]
async fn both_storages_are_left() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    run(&client, LANES).await;
    let role = db.role("role").await;
    let grants = format!("SELECT awa_ingest.grant_producer('{role}'), awa_ingest.grant_operator('{role}')");
    run(&client, &grants).await;
    db.migrate_awa().await;
    run(&client, &grants).await;
    run(&client, "SELECT awa_ingest.attach(); SELECT awa.enqueue('k', queue => 'after')").await;
    run(&client, &grants).await;
    run(&client, &format!("SELECT awa_ingest.revoke_producer('{role}'), awa_ingest.revoke_operator('{role}'); DROP ROLE {role}"))
        .await;
}
