//! `awa_ingest.analyze_relation`: which tables, for whom, and with whose rights.

use awa_ingest_tests::{Db, Failure, Storage, Template, failure};
use tokio_postgres::Client;

use crate::stage::run;

const HEADS: [&str; 2] = ["queue_enqueue_heads", "queue_claim_heads"];

/// What it returns, or the SQLSTATE with which it refuses.
async fn analyze(client: &Client, table: &str) -> Result<String, String> {
    let sql = format!("SELECT awa_ingest.analyze_relation({table}::regclass)");
    client.query_one(&sql, &[]).await.map(|row| row.get(0)).map_err(|error| Failure::from(error).sqlstate)
}

/// A role that may call it, and no more.
async fn caller(db: &Db, client: &Client, purpose: &str, storage: Storage) -> String {
    let role = db.role(purpose).await;
    let (schema, signature) = (storage.schema(), "awa_ingest.analyze_relation(regclass)");
    run(client, &format!("GRANT USAGE ON SCHEMA {schema}, awa_ingest TO {role}; GRANT EXECUTE ON FUNCTION {signature} TO {role}"))
        .await;
    role
}

async fn grant_heads(client: &Client, role: &str, storage: Storage) {
    for head in HEADS {
        run(client, &format!("GRANT INSERT, UPDATE, DELETE ON {} TO {role}", storage.table(head))).await;
    }
}

fn analyzed() -> Result<String, String> {
    Ok("analyzed".into())
}

#[track_caller]
fn assert_refused(result: Result<String, String>, sqlstate: &str, what: &str) {
    assert_eq!(result, Err(sqlstate.to_owned()), "{what}");
}

/// For a role that owns nothing.
#[tokio::test(flavor = "multi_thread")]
async fn which_tables() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let role = caller(&db, &client, "worker", storage).await;
        grant_heads(&client, &role, storage).await;
        let session = db.connect_as(&role).await;
        for table in ["ready_entries", "ready_segments", "queue_enqueue_heads", "queue_claim_heads"] {
            assert_eq!(analyze(&session, &format!("'{}'", storage.table(table))).await, analyzed(), "{storage:?}: {table}");
            let known = format!("SELECT reltuples = 0 FROM pg_class WHERE oid = '{}'::regclass", storage.table(table));
            assert!(client.query_one(&known, &[]).await.expect(&known).get::<_, bool>(0), "{storage:?}: {table}");
        }
        run(&client, "CREATE TABLE public.ready_entries (n integer)").await;
        for table in ["deferred_jobs", "ready_entries_0", "queue_lanes", "queue_ring_state", "queue_meta", "job_unique_claims"] {
            assert_refused(analyze(&session, &format!("'{}'", storage.table(table))).await, "22023", table);
        }
        for table in ["'pg_class'", "'public.ready_entries'", "0", "NULL", "'pg_statistic'"] {
            assert_refused(analyze(&session, table).await, "22023", table);
        }
    }
}

/// The embedded tables are still there where awa's are in use.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_storage_in_use() {
    let client = Db::awa().await.connect().await;
    assert_refused(analyze(&client, "'awa_ingest.ready_entries'").await, "22023", "attached");
    assert_eq!(analyze(&client, "'awa.leases'").await, analyzed());

    let canonical = Db::of(Template::AwaCanonical).await;
    let client = canonical.connect().await;
    run(&client, "CREATE EXTENSION awa_ingest").await;
    for table in ["'awa_ingest.ready_entries'", "'awa.jobs_hot'"] {
        assert_refused(analyze(&client, table).await, "55000", table);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_right_on_both_heads_is_asked_for() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let role = caller(&db, &client, "worker", Storage::Attached).await;
    let session = db.connect_as(&role).await;
    assert_refused(analyze(&session, "'awa.ready_entries'").await, "42501", "none");
    grant_heads(&client, &role, Storage::Attached).await;
    for head in HEADS {
        for right in ["INSERT", "UPDATE", "DELETE"] {
            run(&client, &format!("REVOKE {right} ON awa.{head} FROM {role}")).await;
            assert_refused(analyze(&session, "'awa.ready_entries'").await, "42501", &format!("{right} on {head}"));
            // Who may not is not told which tables there are.
            assert_refused(analyze(&session, "'pg_class'").await, "42501", &format!("{right} on {head}"));
            run(&client, &format!("GRANT {right} ON awa.{head} TO {role}")).await;
        }
    }
    assert_eq!(analyze(&session, "'awa.ready_entries'").await, analyzed());
}

/// SET ROLE takes nothing away, and gives nothing: whose session it is counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_session_user_counts() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let worker = caller(&db, &client, "worker", Storage::Attached).await;
    let other = caller(&db, &client, "other", Storage::Attached).await;
    grant_heads(&client, &worker, Storage::Attached).await;
    run(&client, &format!("ALTER ROLE {other} NOINHERIT; GRANT {worker} TO {other}")).await;
    let session = db.connect_as(&other).await;
    run(&session, &format!("SET ROLE {worker}")).await;
    assert_refused(analyze(&session, "'awa.ready_entries'").await, "42501", "has become the worker");

    run(&client, &format!("REVOKE {worker} FROM {other}; GRANT {other} TO {worker}")).await;
    let session = db.connect_as(&worker).await;
    run(&session, &format!("SET ROLE {other}")).await;
    assert_eq!(analyze(&session, "'awa.ready_entries'").await, analyzed());
}

/// An index of the storage's owner runs his function, and as him.
#[tokio::test(flavor = "multi_thread")]
async fn code_of_the_tables_owner_runs_as_him() {
    let (db, owner) = Db::awa_of_a_role().await;
    let (client, owning) = (db.connect().await, db.connect_as(&owner).await);
    awa_ingest_tests::jobs::enqueue(&client, &crate::stage::job("rows", "complete")).await;
    run(&client, &format!("CREATE SCHEMA spy AUTHORIZATION {owner}")).await;
    let spy = "CREATE TABLE spy.seen (acting text, session text);
         CREATE FUNCTION spy.note() RETURNS void LANGUAGE plpgsql VOLATILE AS
             $$BEGIN INSERT INTO spy.seen VALUES (current_user, session_user); END$$;
         CREATE FUNCTION spy.look(queue text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
             $$BEGIN PERFORM spy.note(); RETURN queue; END$$;
         CREATE INDEX ON awa.queue_enqueue_heads (spy.look(queue));
         CREATE INDEX ON awa.ready_entries (spy.look(queue));
         TRUNCATE spy.seen";
    run(&owning, spy).await;
    for table in ["'awa.queue_enqueue_heads'", "'awa.ready_entries'"] {
        run(&client, "TRUNCATE spy.seen").await;
        assert_eq!(analyze(&client, table).await, analyzed());
        let seen = "SELECT array_agg(DISTINCT acting) FROM spy.seen";
        assert_eq!(client.query_one(seen, &[]).await.expect(seen).get::<_, Vec<String>>(0), [&*owner], "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_lock_goes_with_the_transaction() {
    let db = Db::awa().await;
    let (client, other) = (db.connect().await, db.connect().await);
    let lock = "BEGIN; LOCK TABLE ONLY awa.ready_entries IN SHARE UPDATE EXCLUSIVE MODE NOWAIT; COMMIT";
    run(&client, "BEGIN").await;
    assert_eq!(analyze(&client, "'awa.ready_entries'").await, analyzed());
    assert_eq!(failure(other.batch_execute(lock).await).sqlstate, "55P03");
    run(&other, "ROLLBACK").await;
    assert_eq!(analyze(&other, "'awa.ready_entries'").await, Ok("skipped_lock".into()));
    run(&client, "COMMIT").await;
    run(&other, lock).await;
    assert_eq!(analyze(&other, "'awa.ready_entries'").await, analyzed());
}

/// What the caller puts into his search path is not called, with the rights of the extension's owner or any.
#[tokio::test(flavor = "multi_thread")]
async fn the_callers_search_path_does_not_matter() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let role = caller(&db, &client, "worker", Storage::Attached).await;
    grant_heads(&client, &role, Storage::Attached).await;
    run(&client, &format!("CREATE SCHEMA evil AUTHORIZATION {role}")).await;
    let session = db.connect_as(&role).await;
    let trap = "CREATE FUNCTION evil.trap(anyelement) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
         CREATE FUNCTION evil.equal(oid, oid) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
         CREATE FUNCTION evil.equal(name, name) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
         CREATE FUNCTION evil.to_regclass(text) RETURNS regclass LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
         CREATE FUNCTION evil.format(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE 'trapped'; END$$;
         CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.equal);
         CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.equal);
         CREATE TEMP TABLE pg_class (oid oid, relname name, relnamespace oid, relkind \"char\", reltuples real);
         SET search_path = evil, pg_temp, pg_catalog";
    run(&session, trap).await;
    for table in ["'awa.ready_entries'", "'awa.queue_claim_heads'"] {
        assert_eq!(analyze(&session, table).await, analyzed(), "{table}");
    }
    assert_refused(analyze(&session, "'pg_class'").await, "22023", "the temporary table");
}
