//! Roles that can create in the schemas, and own nothing of the storage: nobody runs their code by enqueueing or looking.

use awa_ingest_tests::{Db, failure};
use tokio_postgres::Client;

/// awa's state, with indexes that run code of its owner when a query on it is planned.
const STATE: &str = "
    CREATE TABLE awa.storage_transition_state (
        singleton boolean, current_engine text, prepared_engine text, state text, details jsonb);
    CREATE TABLE awa.runtime_storage_backends (backend text, schema_name text);
    CREATE TABLE awa.schema_version (version integer);
    CREATE INDEX ON awa.storage_transition_state (state) WHERE public.trap();
    CREATE INDEX ON awa.runtime_storage_backends (backend) WHERE public.trap();
    CREATE INDEX ON awa.schema_version (version) WHERE public.trap();
    GRANT SELECT ON awa.storage_transition_state, awa.runtime_storage_backends, awa.schema_version TO PUBLIC;";

/// A role with a trap: `public.trap()` notes when another role runs it.
async fn attacker(db: &Db, superuser: &Client) -> (String, Client) {
    let role = db.role("attacker").await;
    let setup =
        "CREATE SEQUENCE public.sprung; GRANT ALL ON SEQUENCE public.sprung TO PUBLIC; GRANT CREATE ON SCHEMA public TO PUBLIC";
    superuser.batch_execute(setup).await.unwrap();
    let client = db.connect_as(&role).await;
    let trap = format!(
        "CREATE FUNCTION public.trap() RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             IF current_user <> '{role}' THEN PERFORM nextval('public.sprung'); END IF;
             RETURN true; END $$"
    );
    client.batch_execute(&trap).await.unwrap();
    superuser.batch_execute("SELECT public.trap()").await.unwrap();
    assert!(has_sprung(superuser).await, "the trap works");
    superuser.batch_execute("ALTER SEQUENCE public.sprung RESTART").await.unwrap();
    (role, client)
}

async fn has_sprung(superuser: &Client) -> bool {
    superuser.query_one("SELECT is_called FROM public.sprung", &[]).await.unwrap().get(0)
}

/// A table in schema awa makes no awa: it must belong to the schema's owner.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_others_in_schema_awa_are_not_read() {
    let db = Db::embedded().await;
    let superuser = db.connect().await;
    let (role, attacker) = attacker(&db, &superuser).await;
    let producer = db.role("producer").await;
    let grants = format!("GRANT USAGE, CREATE ON SCHEMA awa TO {role}; SELECT awa_ingest.grant_producer('{producer}')");
    superuser.batch_execute(&grants).await.unwrap();
    attacker.batch_execute(STATE).await.unwrap();
    let calls = [
        "SELECT awa.enqueue('k')",
        "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]')",
        "SELECT awa.enqueue_columns('{k}')",
        "SELECT awa.enqueue_csv(E'kind\\nk\\n'::text)",
        "INSERT INTO awa.ingest (kind) VALUES ('k')",
    ];
    for client in [&superuser, &db.connect_as(&producer).await] {
        for call in calls {
            let refused = failure(client.batch_execute(call).await);
            assert!(refused.sqlstate == "55000" && refused.detail.contains(&role), "{call}: {refused:?}");
        }
        let problem: String = client.query_one("SELECT problem FROM awa_ingest.status()", &[]).await.unwrap().get(0);
        assert!(problem.contains("one owner"), "{problem}");
        assert!(!has_sprung(&superuser).await);
    }
}

/// The owner of schema awa makes his tables in the middle of an INSERT through a superuser's view. Who writes was decided before.
#[tokio::test(flavor = "multi_thread")]
async fn awa_that_comes_within_a_statement_is_not_read_for_the_views_owner() {
    let db = Db::embedded().await;
    let superuser = db.connect().await;
    let (role, attacker) = attacker(&db, &superuser).await;
    let setup = format!(
        "ALTER SCHEMA awa OWNER TO {role}; CREATE VIEW public.mine AS SELECT kind FROM awa.ingest;
         GRANT INSERT ON public.mine TO {role}"
    );
    superuser.batch_execute(&setup).await.unwrap();
    let function = format!(
        "CREATE FUNCTION public.kind(number integer, at integer) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
             IF number = at THEN {STATE} END IF;
             RETURN 'k'; END $$"
    );
    attacker.batch_execute(&function).await.unwrap();
    for at in [1, 2] {
        let insert = format!("INSERT INTO public.mine SELECT public.kind(number, {at}) FROM generate_series(1, 3) AS number");
        let refused = failure(attacker.batch_execute(&insert).await);
        assert!(["55000", "40001"].contains(&&*refused.sqlstate), "{at}: {refused:?}");
        assert!(!has_sprung(&superuser).await, "{at}");
    }
    attacker.batch_execute("INSERT INTO public.mine VALUES ('k')").await.unwrap();
}
