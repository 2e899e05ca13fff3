//! Who may COPY and INSERT: INSERT on the foreign table together with `grant_producer`, and nothing else.

use awa_ingest_tests::copy::{copy_csv, copy_in, last_ingest, last_summary};
use awa_ingest_tests::{Db, Failure, Storage, assert_nothing_stored, assert_same_rows, failure, rows, stored_kinds};
use serde_json::{Value, json};
use tokio_postgres::Client;

const TABLES: [&str; 2] = ["awa.ingest", "awa.ingest_skip_conflicts"];

async fn grant_producer(db: &Db, role: &str) {
    db.connect().await.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect("grant_producer");
}

async fn superuser(db: &Db, statement: &str) {
    db.connect().await.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// What COPY and INSERT into `table` say to `role`. A COPY that is refused at its beginning is the last of its connection.
async fn refusals(db: &Db, role: &str, table: &str) -> [Failure; 3] {
    let client = db.connect_as(role).await;
    let insert = failure(client.execute(&format!("INSERT INTO {table} (kind) VALUES ('k')"), &[]).await);
    let returning = failure(client.query(&format!("INSERT INTO {table} (kind) VALUES ('k') RETURNING kind"), &[]).await);
    let copy = failure(copy_csv(&client, table, "kind", "k\n").await);
    [insert, returning, copy]
}

async fn assert_forbidden(db: &Db, role: &str, table: &str, what: &str) {
    for refused in refusals(db, role, table).await {
        assert_eq!(refused.sqlstate, "42501", "{what}, {table}: {refused:?}");
    }
}

/// Everything a producer does by COPY and INSERT, in known lanes and in new ones.
async fn produce(client: &Client, table: &str, queue: &str) {
    let csv = format!("a,{queue},,\nb,{queue},true,\nc,,,2041-01-01\n");
    let copy = format!("COPY {table} (kind, queue, uniqueness, run_at) FROM STDIN WITH (FORMAT csv)");
    assert_eq!(copy_in(client, &copy, csv).await.expect(&copy), 3);
    assert_eq!(last_summary(client).await.expect("a COPY").enqueued, 3);
    assert_eq!(last_ingest(client).await.len(), 3);
    let insert = format!("INSERT INTO {table} (kind, queue) VALUES ('d', $1), ('e', $1) RETURNING job_id, kind");
    assert_eq!(client.query(&insert, &[&queue]).await.expect(&insert).len(), 2);
    client.execute(&format!("INSERT INTO {table} (kind) SELECT 'f' FROM generate_series(1, 10)"), &[]).await.expect("INSERT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_copies_and_inserts() {
    for storage in Storage::BOTH {
        for table in TABLES {
            let db = storage.db().await;
            let (first, second) = (db.role("first").await, db.role("second").await);
            for role in [&first, &second] {
                grant_producer(&db, role).await;
            }
            produce(&db.connect_as(&first).await, table, "of the first").await;
            superuser(&db, &format!("DELETE FROM {}", storage.table("job_unique_claims"))).await;
            produce(&db.connect_as(&second).await, table, "of the first").await;
            assert_eq!(stored_kinds(&db.connect().await, storage).await.len(), 30, "{table}, {storage:?}");
        }
    }
}

/// Each of the two rights without the other is not enough.
#[tokio::test(flavor = "multi_thread")]
async fn both_rights_are_needed() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (nobody, inserter, producer) = (db.role("nobody").await, db.role("inserter").await, db.role("producer").await);
        superuser(&db, &format!("GRANT USAGE ON SCHEMA awa TO {inserter}; GRANT INSERT, SELECT ON awa.ingest, awa.ingest_skip_conflicts TO {inserter}")).await;
        grant_producer(&db, &producer).await;
        superuser(&db, &format!("REVOKE INSERT ON awa.ingest, awa.ingest_skip_conflicts FROM {producer}")).await;
        for table in TABLES {
            assert_forbidden(&db, &nobody, table, "no rights at all").await;
            assert_forbidden(&db, &inserter, table, "INSERT alone").await;
            assert_forbidden(&db, &producer, table, "the storage alone").await;
        }
        assert_nothing_stored(&db.connect().await, storage, "forbidden").await;
        superuser(&db, &format!("GRANT INSERT ON awa.ingest TO {producer}")).await;
        produce(&db.connect_as(&producer).await, "awa.ingest", "q").await;

        // RETURNING is reading, of which columns alone can be granted.
        superuser(&db, &format!("REVOKE SELECT ON awa.ingest FROM {producer}")).await;
        let client = db.connect_as(&producer).await;
        let returning = "INSERT INTO awa.ingest (kind) VALUES ('g') RETURNING job_id";
        assert_eq!(failure(client.query(returning, &[]).await).sqlstate, "42501");
        superuser(&db, &format!("GRANT SELECT (job_id) ON awa.ingest TO {producer}")).await;
        client.query(returning, &[]).await.expect("the right to the one column");
    }
}

/// What a producer still cannot do with the foreign tables.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_can_do_nothing_else() {
    let forbidden = [
        "CREATE FOREIGN TABLE mine (kind text) SERVER awa_ingest",
        "CREATE SERVER mine FOREIGN DATA WRAPPER awa_ingest",
        "ALTER FOREIGN TABLE awa.ingest OPTIONS (ADD queue 'mine')",
        "ALTER FOREIGN TABLE awa.ingest ALTER kind SET DEFAULT 'mine'",
        "CREATE TRIGGER mine BEFORE INSERT ON awa.ingest FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "CREATE USER MAPPING FOR CURRENT_USER SERVER awa_ingest",
        "DROP FOREIGN TABLE awa.ingest",
        "SELECT awa_ingest.fdw_validator('{}', 'pg_foreign_table'::regclass)",
    ];
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let producer = db.role("producer").await;
        grant_producer(&db, &producer).await;
        superuser(&db, &format!("GRANT CREATE ON SCHEMA public TO {producer}")).await;
        let client = db.connect_as(&producer).await;
        for statement in forbidden {
            assert_eq!(failure(client.batch_execute(statement).await).sqlstate, "42501", "{statement}, {storage:?}");
        }
        assert_eq!(failure(client.query("TABLE awa.ingest", &[]).await).sqlstate, "0A000", "there is nothing to read");
    }
}

/// A table of a role's own needs USAGE on the server to be made, and the storage's rights of whoever writes to it.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_role() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (owner, producer, inserter) = (db.role("owner").await, db.role("producer").await, db.role("inserter").await);
        superuser(&db, &format!("GRANT CREATE ON SCHEMA public TO {owner}")).await;
        let client = db.connect_as(&owner).await;
        let create = "CREATE FOREIGN TABLE orders (kind text, queue text, uniqueness jsonb, run_at timestamptz, job_id bigint) SERVER awa_ingest";
        assert_eq!(failure(client.batch_execute(create).await).sqlstate, "42501");
        superuser(&db, &format!("GRANT USAGE ON FOREIGN SERVER awa_ingest TO {owner}")).await;
        client.batch_execute(create).await.expect("USAGE is enough");
        assert_eq!(
            failure(client.batch_execute("INSERT INTO orders (kind) VALUES ('k')").await).sqlstate,
            "42501",
            "it owns no storage"
        );

        grant_producer(&db, &producer).await;
        assert_forbidden(&db, &producer, "orders", "no right to the table").await;
        client
            .batch_execute(&format!("GRANT INSERT ON orders TO {producer}, {inserter}; GRANT SELECT ON orders TO {producer}"))
            .await
            .unwrap();
        assert_forbidden(&db, &inserter, "orders", "no right to the storage").await;
        let writer = db.connect_as(&producer).await;
        for insert in ["INSERT INTO orders (kind) VALUES ('k')", "INSERT INTO orders (kind) VALUES ('k') RETURNING job_id"] {
            writer.execute(insert, &[]).await.expect(insert);
        }
        produce(&writer, "orders", "q").await;

        // A view writes with its owner's rights, to the table and to the storage.
        client
            .batch_execute(&format!("CREATE VIEW v AS SELECT kind FROM orders; GRANT INSERT ON v TO {producer}, {inserter}"))
            .await
            .unwrap();
        let inserter = db.connect_as(&inserter).await;
        for through in [&writer, &inserter] {
            let refused = failure(through.batch_execute("INSERT INTO v VALUES ('k')").await);
            assert_eq!(refused.sqlstate, "42501", "{refused:?}");
        }
        grant_producer(&db, &owner).await;
        for through in [&writer, &inserter] {
            through.batch_execute("INSERT INTO v VALUES ('k')").await.expect("the view's owner is a producer");
        }
        assert_eq!(stored_kinds(&db.connect().await, storage).await.len(), 19, "{storage:?}");
    }
}

/// Privileges on everything that the foreign tables consist of, as `object: privilege`.
const GRANTS: &str = "(
    SELECT c.oid::regclass::text AS object, acl.privilege_type, acl.grantee FROM pg_class AS c,
        aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS acl
     WHERE c.oid IN ('awa.ingest'::regclass, 'awa.ingest_skip_conflicts'::regclass)
    UNION ALL
    SELECT 'server ' || srvname, acl.privilege_type, acl.grantee FROM pg_foreign_server,
        aclexplode(coalesce(srvacl, acldefault('S', srvowner))) AS acl
    UNION ALL
    SELECT 'wrapper ' || fdwname, acl.privilege_type, acl.grantee FROM pg_foreign_data_wrapper,
        aclexplode(coalesce(fdwacl, acldefault('F', fdwowner))) AS acl
    UNION ALL
    SELECT p.oid::regproc::text, acl.privilege_type, acl.grantee FROM pg_proc AS p,
        aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS acl
     WHERE p.pronamespace IN ('awa_ingest'::regnamespace, 'awa'::regnamespace)
       AND p.proname IN ('fdw_handler', 'fdw_validator', 'last_ingest', 'last_ingest_summary', 'enqueue_csv')
    )";

async fn grants_of(client: &Client, grantee: &str) -> Vec<Value> {
    rows(client, &format!("(SELECT object, privilege_type AS right FROM {GRANTS} AS g WHERE grantee = {grantee})"), &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_public_and_a_producer_has_what_it_needs() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        assert_eq!(grants_of(&client, "0").await, Vec::<Value>::new(), "for PUBLIC, {storage:?}");

        let role = db.role("producer").await;
        grant_producer(&db, &role).await;
        let grant = |object: &str, right: &str| json!({"object": object, "right": right});
        let expected = [
            grant("awa.ingest", "INSERT"),
            grant("awa.ingest", "SELECT"),
            grant("awa.ingest_skip_conflicts", "INSERT"),
            grant("awa.ingest_skip_conflicts", "SELECT"),
            grant("awa.last_ingest", "EXECUTE"),
            grant("awa.last_ingest_summary", "EXECUTE"),
            grant("awa.enqueue_csv", "EXECUTE"),
            grant("awa.enqueue_csv", "EXECUTE"),
        ];
        let oid = format!("'{role}'::regrole");
        assert_same_rows(&format!("{storage:?}"), &expected, &grants_of(&client, &oid).await);

        // All of it can be taken back.
        client.batch_execute(&format!("SELECT awa_ingest.revoke_producer('{role}')")).await.unwrap();
        assert_eq!(grants_of(&client, &oid).await, Vec::<Value>::new(), "{storage:?}");
        for table in TABLES {
            assert_forbidden(&db, &role, table, "after revoke_producer").await;
        }
        client.batch_execute(&format!("DROP ROLE {role}")).await.expect("nothing depends on it any more");
    }
}

/// A policy on a table of the storage, and lines of which it allows the first.
const POLICIES: [(&str, &str, &str); 4] = [
    ("ready_entries", "kind = 'allowed'", "allowed,q,,,\nforbidden,q,,,\n"),
    ("ready_segments", "queue <> 'secret'", "allowed,q,,,\nforbidden,secret,,,\n"),
    ("deferred_jobs", "kind = 'allowed'", "allowed,q,2041-01-01,,\nforbidden,q,2041-01-01,,\n"),
    ("job_unique_claims", "unique_key <> '\\xff'", "allowed,q,,\\x00,11111111\nforbidden,q,,\\xff,11111111\n"),
];

#[tokio::test(flavor = "multi_thread")]
async fn row_security_is_honoured() {
    for storage in Storage::BOTH {
        for (table, check, csv) in POLICIES {
            let db = storage.db().await;
            let role = db.role("producer").await;
            grant_producer(&db, &role).await;
            let table = storage.table(table);
            let policies = format!(
                "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY read ON {table} FOR SELECT USING (true);
                 CREATE POLICY write ON {table} FOR INSERT WITH CHECK ({check})"
            );
            superuser(&db, &policies).await;
            let (producer, owner) = (db.connect_as(&role).await, db.connect().await);
            let copy = "COPY awa.ingest (kind, queue, run_at, unique_key, unique_states) FROM STDIN WITH (FORMAT csv)";
            let refused = failure(copy_in(&producer, copy, csv).await);
            assert_eq!(refused.sqlstate, "42501", "{table}: {refused:?}");
            assert_nothing_stored(&owner, storage, &table).await;
            let (allowed, forbidden) = csv.split_at(csv.find('\n').expect("two lines") + 1);
            assert_eq!(copy_in(&producer, copy, allowed).await.expect("the policy allows it"), 1, "{table}");
            assert_eq!(copy_in(&owner, copy, forbidden).await.expect("policies are not for superusers"), 1, "{table}");
        }
    }
}
