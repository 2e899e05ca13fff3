//! What CREATE EXTENSION leaves in the catalog: nothing for PUBLIC, nothing that a caller's search_path could redirect.

use awa_ingest_tests::{Db, Storage, jobs, rows};
use serde_json::{Value, json};

/// The functions of the extension.
const FUNCTIONS: &str = "(SELECT p.* FROM pg_proc AS p JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
      JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE d.deptype = 'e' AND e.extname = 'awa_ingest')";

async fn functions(db: &Db, condition: &str) -> Vec<Value> {
    let query = format!("(SELECT f.oid::regprocedure::text AS name FROM {FUNCTIONS} AS f WHERE {condition})");
    rows(&db.connect().await, &query, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_are_closed_and_documented() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        assert!(functions(&db, "true").await.len() >= 6, "the query finds the functions");
        let none = [
            ("callable by everybody", "has_function_privilege('public', f.oid, 'EXECUTE')"),
            (
                "found along the caller's search_path",
                "NOT EXISTS (SELECT FROM unnest(f.proconfig) AS c WHERE c = 'search_path=pg_catalog, pg_temp')",
            ),
            ("undocumented", "coalesce(obj_description(f.oid, 'pg_proc'), '') = ''"),
            ("safe in parallel workers, where nothing can be written", "f.proparallel <> 'u'"),
        ];
        for (what, condition) in none {
            assert_eq!(functions(&db, condition).await, Vec::<Value>::new(), "{what}, {storage:?}");
        }
        let definers = functions(&db, "f.prosecdef").await;
        let expected = ["awa_ingest.analyze_relation(regclass)", "awa_ingest.provision_lane(text,smallint,smallint)"];
        assert_eq!(definers, expected.map(|name| json!({"name": name})));
    }
}

/// Lane sequences are no members of the extension, but made by it.
#[tokio::test(flavor = "multi_thread")]
async fn relations_and_schemas_are_closed() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    jobs::enqueue(&client, &jobs::job("step", json!({}))).await;
    let open = "(SELECT c.oid::regclass::text AS name, acl.privilege_type FROM pg_class AS c, aclexplode(c.relacl) AS acl
        WHERE c.relnamespace IN ('awa'::regnamespace, 'awa_ingest'::regnamespace) AND acl.grantee = 0
        UNION ALL
        SELECT attrelid::regclass::text, acl.privilege_type FROM pg_attribute, aclexplode(attacl) AS acl
        WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'awa_ingest'::regnamespace) AND acl.grantee = 0
        UNION ALL
        SELECT nspname, acl.privilege_type FROM pg_namespace, aclexplode(nspacl) AS acl
        WHERE nspname IN ('awa', 'awa_ingest') AND acl.grantee = 0)";
    assert_eq!(rows(&client, open, &[]).await, Vec::<Value>::new());
    let relations = "(SELECT FROM pg_class WHERE relnamespace = 'awa_ingest'::regnamespace AND relkind IN ('r', 'p', 'S'))";
    assert!(rows(&client, relations, &[]).await.len() > 40, "the schema is not empty");
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_awa_is_not_the_extensions() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let members = "(SELECT n.nspname FROM pg_depend AS d JOIN pg_namespace AS n ON d.classid = 'pg_namespace'::regclass
            AND d.objid = n.oid WHERE d.deptype = 'e' AND n.nspname LIKE 'awa%')";
        assert_eq!(rows(&client, members, &[]).await, [json!({"nspname": "awa_ingest"})]);
    }
}

/// Nothing in schema awa carries a name that awa uses, or will.
#[tokio::test(flavor = "multi_thread")]
async fn names_in_schema_awa_are_the_public_ones() {
    let db = Db::embedded().await;
    let names: Vec<Value> = functions(&db, "f.pronamespace = 'awa'::regnamespace").await;
    let bare = |name: &Value| name["name"].as_str().and_then(|n| n.split('(').next().map(str::to_owned));
    let names: Vec<String> = names.iter().filter_map(bare).collect();
    let public = [
        "enqueue",
        "enqueue",
        "enqueue_batch",
        "enqueue_batch",
        "enqueue_batch",
        "enqueue_columns",
        "enqueue_csv",
        "enqueue_csv",
        "last_ingest",
        "last_ingest_summary",
    ];
    assert_eq!(names, public.map(|name| format!("awa.{name}")));
    let relations = "(SELECT relname FROM pg_class WHERE relnamespace = 'awa'::regnamespace)";
    let relations = rows(&db.connect().await, relations, &[]).await;
    assert_eq!(relations, ["ingest", "ingest_skip_conflicts"].map(|name| json!({"relname": name})));
}
