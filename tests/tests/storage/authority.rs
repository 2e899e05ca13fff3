//! Whoever owns awa's tables can put code of its own into them: the extension, which a superuser owns, must never run that as its owner.

use awa_ingest_tests::{Db, failure, jobs};
use awa_model::InsertOpts;
use serde_json::json;
use tokio_postgres::{Client, Error};

/// awa as an ordinary role owns it, with a trap: `public.trap()` makes that role a superuser if a superuser runs it.
struct Victim {
    db: Db,
    app: String,
    superuser: Client,
    client: Client,
}

impl Victim {
    async fn new() -> Self {
        let db = Db::bare().await;
        let (app, superuser) = (db.role("app").await, db.connect().await);
        superuser.batch_execute(&format!("GRANT CREATE ON DATABASE {} TO {app}", db.name())).await.unwrap();
        let pool = sqlx::PgPool::connect(&db.url_of(&app)).await.unwrap();
        awa_model::migrations::run(&pool).await.expect("awa migrate");
        pool.close().await;
        let client = db.connect_as(&app).await;
        client.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
        let setup = format!(
            "CREATE EXTENSION awa_ingest; SELECT awa_ingest.grant_producer('{app}');
             ALTER SCHEMA public OWNER TO postgres; GRANT CREATE ON SCHEMA public TO PUBLIC"
        );
        superuser.batch_execute(&setup).await.expect(&setup);
        let victim = Self { db, app, superuser, client };
        victim.set_trap().await;
        victim
    }

    /// The trap hides that it failed, so that whatever runs it goes on.
    async fn set_trap(&self) {
        let escalate = format!(
            "PERFORM nextval('public.sprung');
             BEGIN EXECUTE 'RESET ROLE'; EXCEPTION WHEN OTHERS THEN END;
             BEGIN EXECUTE 'ALTER ROLE {} SUPERUSER'; EXCEPTION WHEN OTHERS THEN END;",
            self.app
        );
        let traps = format!(
            "CREATE SEQUENCE public.sprung;
             CREATE FUNCTION public.trap() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN {escalate} RETURN true; END $$;
             CREATE FUNCTION public.trap_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {escalate} RETURN NEW; END $$"
        );
        self.client.batch_execute(&traps).await.expect(&traps);
        // A trap that never springs would prove nothing.
        self.superuser.batch_execute("BEGIN; SELECT public.trap()").await.unwrap();
        assert!(self.is_superuser().await, "the trap works");
        self.superuser.batch_execute("ROLLBACK").await.unwrap();
        assert!(!self.is_superuser().await);
        self.run("ALTER SEQUENCE public.sprung RESTART").await;
    }

    /// Whether the trap was run, by whomever, also in a statement that failed then.
    async fn has_sprung(&self) -> bool {
        self.superuser.query_one("SELECT is_called FROM public.sprung", &[]).await.unwrap().get(0)
    }

    async fn is_superuser(&self) -> bool {
        let sql = "SELECT rolsuper FROM pg_roles WHERE rolname = $1";
        self.superuser.query_one(sql, &[&self.app]).await.unwrap().get(0)
    }

    /// Runs statements of the app.
    async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.expect(sql);
    }

    /// Every call that creates a lane or looks up the storage, each for a new lane.
    async fn call_all(&self) -> Vec<Result<(), Error>> {
        let provision = "SELECT awa_ingest.provision_lane('trapped', 1::smallint, 0::smallint)";
        let opts = InsertOpts { queue: "new".into(), ..Default::default() };
        vec![
            self.client.batch_execute(provision).await,
            jobs::try_enqueue(&self.client, &jobs::job_with("k", json!({}), opts)).await.map(drop),
            self.client.batch_execute(r#"SELECT awa.enqueue_batch('[{"kind": "k", "queue": "newer"}]')"#).await,
            self.client.batch_execute("SELECT awa.enqueue_columns('{k}', queue => '{newest}')").await,
        ]
    }

    async fn assert_all_refused(&self, attack: &str) {
        for result in self.call_all().await {
            let refused = failure(result);
            assert_eq!(refused.sqlstate, "55000", "{attack}: {refused:?}");
        }
        assert!(!self.has_sprung().await, "{attack}");
        assert!(!self.is_superuser().await, "{attack}");
    }

    async fn assert_all_harmless(&self, attack: &str) {
        for result in self.call_all().await {
            result.unwrap_or_else(|error| panic!("{attack}: {error:?}"));
        }
        self.assert_sprung_in_vain(attack).await;
    }

    async fn assert_sprung_in_vain(&self, attack: &str) {
        assert!(self.has_sprung().await, "the trap was not even reached: {attack}");
        assert!(!self.is_superuser().await, "{attack}");
    }

    /// `ready` of `awa_ingest.status()`, as a superuser sees it.
    async fn is_ready(&self) -> bool {
        self.superuser.query_one("SELECT ready FROM awa_ingest.status()", &[]).await.expect("status reports").get(0)
    }
}

const STATE: [&str; 3] = ["storage_transition_state", "runtime_storage_backends", "schema_version"];

/// What says where the storage is, as a view that runs the owner's code.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_in_place_of_awas_state_is_not_read() {
    for table in STATE {
        let victim = Victim::new().await;
        victim
            .run(&format!(
                "ALTER TABLE awa.{table} RENAME TO real; CREATE VIEW awa.{table} AS SELECT * FROM awa.real WHERE public.trap()"
            ))
            .await;
        victim.run(&format!("GRANT SELECT ON awa.{table} TO PUBLIC")).await;
        let calls: Vec<String> = victim.call_all().await.into_iter().map(|result| failure(result).sqlstate).collect();
        assert_eq!(calls, ["55000"; 4], "{table}");
        assert!(!victim.has_sprung().await, "{table}");
        // Nor when a superuser asks.
        assert!(!victim.is_ready().await, "{table}");
        assert!(!victim.is_superuser().await, "{table}");
    }
}

/// A table with a rule is what a view is, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_on_a_lane_table_is_not_run() {
    for table in ["queue_lanes", "queue_enqueue_heads", "queue_claim_heads"] {
        let victim = Victim::new().await;
        victim.run(&format!("CREATE RULE trap AS ON INSERT TO awa.{table} DO ALSO SELECT public.trap()")).await;
        victim.assert_all_refused(table).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_runs_as_the_tables_owner() {
    for table in ["queue_lanes", "queue_enqueue_heads", "queue_claim_heads"] {
        let victim = Victim::new().await;
        let trigger = format!("CREATE TRIGGER a_trap BEFORE INSERT ON awa.{table} FOR EACH ROW EXECUTE FUNCTION public.trap_row()");
        victim.run(&trigger).await;
        victim.assert_all_harmless(table).await;
    }
}

/// A constraint, a default and a policy of the owner's are its code as well.
#[tokio::test(flavor = "multi_thread")]
async fn expressions_run_as_the_tables_owner() {
    let expressions = [
        "ALTER TABLE awa.queue_lanes ADD CHECK (public.trap())",
        "ALTER TABLE awa.queue_lanes ADD trapped boolean DEFAULT public.trap()",
        "CREATE INDEX ON awa.queue_enqueue_heads ((public.trap_index(queue)))",
    ];
    let index =
        "CREATE FUNCTION public.trap_index(text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN public.trap(); END'";
    for expression in expressions {
        let victim = Victim::new().await;
        victim.run(index).await;
        victim.run(expression).await;
        victim.call_all().await;
        victim.assert_sprung_in_vain(expression).await;
    }
}

/// A storage of the app's in another schema, with a function of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_storage_in_another_schema_runs_as_its_owner() {
    let victim = Victim::new().await;
    victim.superuser.batch_execute(&format!("ALTER SCHEMA public OWNER TO {}", victim.app)).await.unwrap();
    victim.run("SELECT awa.install_queue_storage_substrate('public')").await;
    victim
        .run(
            "CREATE OR REPLACE FUNCTION public.ensure_lane_sequences(p_queue text, p_priority smallint, p_enqueue_shard smallint)
             RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM public.trap(); END';
             UPDATE awa.storage_transition_state SET details = '{\"schema\": \"public\"}'",
        )
        .await;
    // Without their triggers, which make the sequences as well, the heads leave that to the function.
    victim.run("ALTER TABLE public.queue_enqueue_heads DISABLE TRIGGER USER; ALTER TABLE public.queue_claim_heads DISABLE TRIGGER USER").await;
    victim.call_all().await;
    victim.assert_sprung_in_vain("ensure_lane_sequences").await;
    victim.superuser.batch_execute("ALTER SCHEMA public OWNER TO postgres").await.unwrap();
    let refused = failure(victim.client.batch_execute("SELECT awa_ingest.provision_lane('other', 1::smallint, 0::smallint)").await);
    assert!(refused.sqlstate == "55000" && refused.detail.contains("Schema public"), "{refused:?}");
}

/// Tables that only look like awa's.
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_awas_tables_run_as_their_owner() {
    let victim = Victim::new().await;
    victim
        .run(
            "DO $$ DECLARE t name; BEGIN
               FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'p') LOOP
                 EXECUTE format('CREATE TABLE public.%I (LIKE awa.%I INCLUDING ALL)', t, t);
               END LOOP; END $$;
             INSERT INTO public.queue_ring_state SELECT * FROM awa.queue_ring_state;
             CREATE SEQUENCE public.job_id_seq;
             CREATE FUNCTION public.ensure_lane_sequences(text, smallint, smallint) RETURNS void LANGUAGE plpgsql
                 AS 'BEGIN PERFORM public.trap(); END';
             UPDATE awa.storage_transition_state SET details = '{\"schema\": \"public\"}'",
        )
        .await;
    victim.call_all().await;
    assert!(!victim.is_superuser().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn mixed_owners_are_refused() {
    let victim = Victim::new().await;
    let function = "FUNCTION awa.ensure_lane_sequences(text, smallint, smallint)";
    let mut parts: Vec<String> = STATE.iter().map(|table| format!("TABLE awa.{table}")).collect();
    parts.extend(["queue_lanes", "queue_enqueue_heads", "queue_claim_heads"].map(|table| format!("TABLE awa.{table}")));
    parts.extend([function.to_owned(), "SCHEMA awa".to_owned()]);
    for part in parts {
        let keep = format!(
            "BEGIN; ALTER {part} OWNER TO postgres; GRANT ALL ON SCHEMA awa TO {0}; GRANT SELECT ON ALL TABLES IN SCHEMA awa TO {0}",
            victim.app
        );
        victim.superuser.batch_execute(&format!("{keep}; COMMIT")).await.expect(&keep);
        let provision = "SELECT awa_ingest.provision_lane('q', 1::smallint, 0::smallint)";
        let refused = failure(victim.client.batch_execute(provision).await);
        assert_eq!(refused.sqlstate, "55000", "{part}: {refused:?}");
        assert!(refused.hint.contains("one owner") && refused.detail.contains("postgres"), "{part}: {refused:?}");
        let back = format!("ALTER {part} OWNER TO {}", victim.app);
        victim.superuser.batch_execute(&back).await.unwrap();
        victim.run(provision).await;
        victim.superuser.batch_execute("DELETE FROM awa.queue_lanes WHERE queue = 'q'").await.unwrap();
    }
}

/// A name that needs quoting is none of awa's, whether or not such a schema exists.
#[tokio::test(flavor = "multi_thread")]
async fn odd_schema_names_are_refused() {
    let victim = Victim::new().await;
    victim.run(r#"CREATE SCHEMA "a'b""c""#).await;
    for schema in ["a'b\"c", "awa\"; SELECT public.trap(); --", "Awa", "no_such_schema", " awa", "pg_temp"] {
        let details = json!({"schema": schema});
        victim.client.execute("UPDATE awa.storage_transition_state SET details = $1", &[&details]).await.unwrap();
        victim.assert_all_refused(schema).await;
        assert!(!victim.is_ready().await, "{schema}");
    }
    victim.run("UPDATE awa.storage_transition_state SET details = '{\"schema\": \"awa\"}'").await;
    for result in victim.call_all().await {
        result.expect("back in awa");
    }
    assert!(victim.is_ready().await && victim.db.connect().await.query("SELECT awa.enqueue('k')", &[]).await.is_ok());
}
