//! `awa_ingest.attach()` replaces the body and nothing else, or refuses and changes nothing.

use awa_ingest_tests::{Db, Template, backend_pid, failure, wait_until, within};
use serde_json::json;
use tokio_postgres::Client;

use crate::setup::{ANOTHER_ROW_TYPE, FUNCTION, assert_status, companions, definition, identity, insert, run, status};

/// An owner, a comment and privileges that are not the defaults.
async fn decorate(db: &Db, client: &Client) -> String {
    let (owner, caller) = (db.role("decorated").await, db.role("caller").await);
    let sql = format!(
        "GRANT USAGE, CREATE ON SCHEMA awa TO {owner};
         ALTER FUNCTION {FUNCTION} OWNER TO {owner};
         REVOKE ALL ON FUNCTION {FUNCTION} FROM PUBLIC;
         GRANT EXECUTE ON FUNCTION {FUNCTION} TO {caller} WITH GRANT OPTION;
         COMMENT ON FUNCTION {FUNCTION} IS 'ours, and no one else''s'"
    );
    run(client, &sql).await;
    owner
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_the_body_is_kept() {
    let db = Db::awa().await;
    let client = db.connect().await;
    for decorated in [false, true] {
        if decorated {
            decorate(&db, &client).await;
        }
        let (before, original) = (identity(&client).await, definition(&client).await);
        assert_status(&client, "original", "before").await;
        assert_eq!(companions(&client).await, 0);
        run(&client, "SELECT awa_ingest.attach()").await;
        assert_eq!(identity(&client).await, before);
        assert_ne!(definition(&client).await, original);
        assert_status(&client, "replaced", "after").await;
        assert_eq!(companions(&client).await, 3);

        // Again, which must not take the replacement for the original.
        run(&client, "SELECT awa_ingest.attach(); SELECT awa_ingest.attach()").await;
        assert_eq!(identity(&client).await, before);
        assert_eq!(companions(&client).await, 3);
        insert(&client, "'k'").await;
        run(&client, "SELECT awa_ingest.detach()").await;
        assert_eq!((identity(&client).await, definition(&client).await), (before, original));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_is_the_extensions() {
    let client = crate::setup::attached().await.connect().await;
    let sql = format!(
        "SELECT lanname::text, probin FROM pg_proc JOIN pg_language AS l ON l.oid = prolang WHERE pg_proc.oid = '{FUNCTION}'::regprocedure"
    );
    let row = client.query_one(&sql, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "c");
    assert!(row.get::<_, &str>(1).contains("awa_ingest"));
}

/// Also while other sessions and this one have called the function before.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_undoes_it() {
    let db = Db::awa().await;
    let (client, other) = (db.connect().await, db.connect().await);
    let original = definition(&client).await;
    insert(&other, "'k'").await;
    for undo in ["ROLLBACK", "ROLLBACK TO before; COMMIT"] {
        run(&client, "BEGIN; SAVEPOINT before; SELECT awa_ingest.attach()").await;
        insert(&client, "'k'").await;
        assert_status(&client, "replaced", undo).await;
        assert_status(&other, "original", undo).await;
        insert(&other, "'k', 'another lane'").await;
        run(&client, undo).await;
        for session in [&client, &other] {
            assert_status(session, "original", undo).await;
            assert_eq!((definition(session).await, companions(session).await), (original.clone(), 0), "{undo}");
            insert(session, "'k'").await;
        }
    }
    run(&client, "SELECT awa_ingest.attach()").await;
    assert_status(&other, "replaced", "attached after all").await;
    insert(&other, "'k'").await;
}

async fn may_attach(db: &Db, role: &str) -> Client {
    let grants = format!(
        "GRANT USAGE ON SCHEMA awa, awa_ingest TO {role};
         GRANT EXECUTE ON FUNCTION awa_ingest.attach(), awa_ingest.detach(), awa_ingest.status() TO {role};
         GRANT SELECT ON awa.schema_version, awa.storage_transition_state, awa.runtime_storage_backends TO {role}"
    );
    run(&db.connect().await, &grants).await;
    db.connect_as(role).await
}

#[tokio::test(flavor = "multi_thread")]
async fn others_than_the_owner_are_refused() {
    for superusers_own in [true, false] {
        let db = if superusers_own { Db::awa().await } else { Db::awa_of_a_role().await.0 };
        let stranger = may_attach(&db, &db.role("stranger").await).await;
        let superuser = db.connect().await;
        let original = definition(&superuser).await;
        assert_eq!(failure(stranger.batch_execute("SELECT awa_ingest.attach()").await).sqlstate, "42501");
        assert_eq!((definition(&superuser).await, companions(&superuser).await), (original.clone(), 0));

        run(&superuser, "SELECT awa_ingest.attach()").await;
        let replaced = definition(&superuser).await;
        for call in ["SELECT awa_ingest.attach()", "SELECT awa_ingest.detach()"] {
            assert_eq!(failure(stranger.batch_execute(call).await).sqlstate, "42501", "{call}");
        }
        assert_eq!((definition(&superuser).await, companions(&superuser).await), (replaced, 3));
    }
}

/// Nobody has the right to call them who was not given it.
#[tokio::test(flavor = "multi_thread")]
async fn the_functions_are_not_public() {
    let db = Db::awa().await;
    let role = db.role("nobody").await;
    run(&db.connect().await, &format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}; SELECT awa_ingest.attach()")).await;
    let client = db.connect_as(&role).await;
    let calls = [
        "SELECT awa_ingest.attach()",
        "SELECT awa_ingest.detach()",
        "SELECT awa_ingest.adopt()",
        "SELECT awa_ingest.insert_jobs_compat_batch('{k}')",
        "SELECT awa_ingest.insert_many_skip_unique_conflicts('[]')",
        "SELECT awa_ingest.last_ingest_jobs()",
    ];
    for call in calls {
        let refused = failure(client.batch_execute(call).await);
        assert_eq!(refused.sqlstate, "42501", "{call}");
        assert!(refused.message.contains("permission denied for function"), "{call}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_and_its_members_attach_and_detach() {
    let (db, owner) = Db::awa_of_a_role().await;
    let member = db.role("member").await;
    run(&db.connect().await, &format!("GRANT {owner} TO {member}")).await;
    let (before, original) = (identity(&db.connect().await).await, definition(&db.connect().await).await);
    for role in [&owner, &member] {
        let client = may_attach(&db, role).await;
        for _ in 0..2 {
            run(&client, "SELECT awa_ingest.attach()").await;
            assert_status(&client, "replaced", role).await;
            assert_eq!((identity(&client).await, companions(&client).await), (before.clone(), 3), "{role}");
            insert(&client, "'k'").await;
            insert(&client, &format!("'k', '{role}'")).await;
        }
        run(&client, "SELECT awa_ingest.detach()").await;
        assert_eq!((definition(&client).await, companions(&client).await), (original.clone(), 0), "{role}");
        insert(&client, "'k'").await;
    }
}

const CHANGED_BODY: &str = "DO $do$ BEGIN
    EXECUTE replace(pg_get_functiondef((SELECT oid FROM pg_proc WHERE proname = 'insert_job_compat')), 'v_hash := 14695981039346656037;', 'v_hash := 1;');
    END $do$";
const FEWER_ARGUMENTS: &str = "DROP FUNCTION awa.insert_job_compat;
    CREATE FUNCTION awa.insert_job_compat(p_kind text) RETURNS awa.jobs LANGUAGE sql AS 'SELECT NULL::awa.jobs'";
const ANOTHER_DEFAULT: &str = "DO $do$ BEGIN
    EXECUTE replace(pg_get_functiondef((SELECT oid FROM pg_proc WHERE proname = 'insert_job_compat')), 'DEFAULT 25', 'DEFAULT 26');
    END $do$";
/// What is not awa's 0.6.9, and what the function is then said to be: unknown, unless it is the rest that has changed.
const UNKNOWN: [(&str, &str, Option<&str>); 6] = [
    ("a changed body", CHANGED_BODY, Some("unknown")),
    ("another signature", FEWER_ARGUMENTS, Some("unknown")),
    ("another default", ANOTHER_DEFAULT, Some("unknown")),
    ("no function", "DROP FUNCTION awa.insert_job_compat", Some("missing")),
    ("an older schema", "DELETE FROM awa.schema_version WHERE version = 40", None),
    ("a newer schema", "INSERT INTO awa.schema_version (version, description) VALUES (43, 'ring cursor ledger')", None),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_is_refused() {
    let functions = "SELECT coalesce(jsonb_agg(pg_get_functiondef(oid)), '[]') FROM pg_proc WHERE proname = 'insert_job_compat'";
    for (what, change, said) in UNKNOWN {
        let client = Db::awa().await.connect().await;
        run(&client, change).await;
        let before: serde_json::Value = client.query_one(functions, &[]).await.unwrap().get(0);
        for _ in 0..2 {
            let answer = client.batch_execute("SELECT awa_ingest.attach()").await;
            assert!(answer.is_err(), "attached, although {what}");
            let refused = failure(answer);
            assert_eq!(refused.sqlstate, "55000", "{what}: {refused:?}");
            assert!(!refused.hint.is_empty(), "{what}: {refused:?}");
        }
        let after: serde_json::Value = client.query_one(functions, &[]).await.unwrap().get(0);
        assert_eq!((after, companions(&client).await), (before, 0), "{what}");
        if let Some(said) = said {
            assert_status(&client, said, what).await;
        }
        run(&client, "SELECT awa_ingest.detach()").await;
    }
}

/// The function returns rows of a view: what it has no room for cannot be returned.
#[tokio::test(flavor = "multi_thread")]
async fn another_row_type_is_refused() {
    let client = Db::awa().await.connect().await;
    run(&client, ANOTHER_ROW_TYPE).await;
    let original = definition(&client).await;
    let answer = client.batch_execute("SELECT awa_ingest.attach()").await;
    assert!(answer.is_err(), "attached");
    assert_eq!(failure(answer).sqlstate, "55000");
    assert_eq!((definition(&client).await, companions(&client).await), (original, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_has_to_be_an_awa() {
    let client = Db::embedded().await.connect().await;
    let refused = failure(client.batch_execute("SELECT awa_ingest.attach()").await);
    assert_eq!(refused.sqlstate, "55000", "{refused:?}");
    assert!(!refused.hint.is_empty(), "{refused:?}");
    assert_eq!(status(&client).await, None);
    run(&client, "SELECT awa_ingest.detach()").await;
}

/// The canonical engine is no reason to wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_canonical_database_is_attached() {
    let client = Db::of(Template::AwaCanonical).await.connect().await;
    run(&client, "CREATE EXTENSION awa_ingest; SELECT awa_ingest.attach()").await;
    assert_status(&client, "replaced", "canonical").await;
    assert_eq!(insert(&client, "'k'").await["id"], json!(1));
}

/// Whoever changes the same waits for the other, and finds what that one left; of two different calls either may be the later one.
#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_attach_and_detach_at_once() {
    let calls = [("attach", "attach"), ("detach", "detach"), ("attach", "detach"), ("detach", "attach")];
    for ((first, second), end) in calls.into_iter().flat_map(|calls| ["COMMIT", "ROLLBACK"].map(|end| (calls, end))) {
        let what = format!("{first}, {second}, {end}");
        let db = Db::awa().await;
        let (a, b, observer) = (db.connect().await, db.connect().await, db.connect().await);
        let original = definition(&a).await;
        if first == "detach" {
            run(&a, "SELECT awa_ingest.attach()").await;
        }
        run(&a, &format!("BEGIN; SELECT awa_ingest.{first}()")).await;
        let pid = backend_pid(&b).await;
        let call = format!("SELECT awa_ingest.{second}()");
        let sent = call.clone();
        let waiting = tokio::spawn(async move { (b.batch_execute(&sent).await, b) });
        let or_done = format!(
            "SELECT cardinality(pg_blocking_pids(pid)) > 0 OR state = 'idle' FROM pg_stat_activity WHERE pid = {pid} AND query = '{call}'"
        );
        wait_until(&observer, &or_done).await;
        run(&a, end).await;
        let (done, b) = within(&what, waiting).await.expect("the task");
        done.unwrap_or_else(|error| panic!("{what}: {error:?}"));

        let left = status(&b).await.expect("there is an awa");
        let expected: &[&str] = match (first, second) {
            ("attach", "attach") => &["replaced"],
            ("detach", "detach") => &["original"],
            _ => &["replaced", "original"],
        };
        assert!(expected.contains(&left.as_str()), "{what}: {left}");
        assert_eq!(definition(&b).await == original, left == "original", "{what}");
        assert_eq!(companions(&b).await, if left == "original" { 0 } else { 3 }, "{what}");
        insert(&b, "'k'").await;
        run(&b, "SELECT awa_ingest.detach()").await;
        assert_eq!((definition(&b).await, companions(&b).await), (original, 0), "{what}");
    }
}
