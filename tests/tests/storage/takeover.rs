//! A role that may create in schema awa, or owns that alone, must not get the rights of the tables' owner, of the extension's owner or
//! of a superuser who calls.

use awa_ingest_tests::{Db, Failure, backend_pid, failure, wait_until_blocked};
use tokio_postgres::Client;

/// A database, a superuser's connection, and a role with its connection and its trap.
struct Attack {
    db: Db,
    superuser: Client,
    role: String,
    client: Client,
}

impl Attack {
    /// `public.trap` runs while a query is planned. Run by another role than the attacker, it leaves a trace, and makes the attacker a
    /// superuser if it can.
    async fn on(db: Db) -> Self {
        let (role, superuser) = (db.role("attacker").await, db.connect().await);
        let setup = format!(
            "GRANT USAGE, CREATE ON SCHEMA awa, awa_ingest, public TO {role};
             GRANT EXECUTE ON FUNCTION awa_ingest.provision_lane(text, smallint, smallint), awa_ingest.analyze_relation(regclass) TO {role}"
        );
        superuser.batch_execute(&setup).await.expect(&setup);
        let client = db.connect_as(&role).await;
        let trap = format!(
            "CREATE SEQUENCE public.sprung;
             CREATE FUNCTION public.rise() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                 IF current_user <> '{role}' THEN
                     PERFORM pg_catalog.nextval('public.sprung');
                     BEGIN EXECUTE 'ALTER ROLE {role} SUPERUSER'; EXCEPTION WHEN OTHERS THEN END;
                 END IF;
                 RETURN true; END $$;
             CREATE FUNCTION public.trap(boolean) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN public.rise(); END $$;
             GRANT ALL ON SEQUENCE public.sprung TO PUBLIC"
        );
        client.batch_execute(&trap).await.expect(&trap);
        Self { db, superuser, role, client }
    }

    async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.expect(sql);
    }

    async fn set_up(&self, sql: &str) {
        self.superuser.batch_execute(sql).await.expect(sql);
    }

    async fn assert_in_vain(&self, attack: &str) {
        let sql = "SELECT (SELECT is_called FROM public.sprung), rolsuper FROM pg_roles WHERE rolname = $1";
        let row = self.superuser.query_one(sql, &[&self.role]).await.expect(sql);
        assert_eq!((row.get::<_, bool>(0), row.get::<_, bool>(1)), (false, false), "the trap was run, and with success: {attack}");
    }

    /// A trap that nobody could run into would prove nothing.
    async fn assert_trap_works(&self, table: &str) {
        let sql = format!("BEGIN; SELECT FROM {table} WHERE true");
        self.set_up(&sql).await;
        let sprung: bool = self.superuser.query_one("SELECT is_called FROM public.sprung", &[]).await.unwrap().get(0);
        self.set_up("ROLLBACK; ALTER SEQUENCE public.sprung RESTART").await;
        assert!(sprung, "the trap on {table} works");
    }
}

fn provision(queue: &str) -> String {
    format!("SELECT awa_ingest.provision_lane('{queue}', 1::smallint, 0::smallint)")
}

/// awa's state as the attacker makes it, with a trap in an index of each table.
const STATE: &str = "
    CREATE TABLE awa.runtime_storage_backends (backend text, schema_name text);
    CREATE TABLE awa.schema_version (version integer);
    INSERT INTO awa.schema_version VALUES (40);
    CREATE TABLE awa.storage_transition_state (singleton boolean, current_engine text, prepared_engine text, state text, details jsonb);
    INSERT INTO awa.storage_transition_state VALUES (true, 'queue_storage', NULL, 'active', '{\"schema\": \"awa\"}');
    CREATE INDEX ON awa.storage_transition_state (singleton) WHERE public.trap(true);
    CREATE INDEX ON awa.schema_version (version) WHERE public.trap(true);
    CREATE INDEX ON awa.runtime_storage_backends (backend) WHERE public.trap(true)";

async fn owner_of_awa(db: &Db) -> String {
    let sql = "SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = 'awa'";
    db.connect().await.query_one(sql, &[]).await.expect(sql).get(0)
}

/// A session that has found no awa has that in its caches, and in an open transaction nothing renews them by itself: the extension's
/// owner must not be who finds it.
#[tokio::test(flavor = "multi_thread")]
async fn an_awa_that_appears_is_not_read_by_the_extensions_owner() {
    for begin in ["", "BEGIN"] {
        let attack = Attack::on(Db::embedded().await).await;
        let other = attack.db.connect_as(&attack.role).await;
        other.batch_execute(begin).await.expect("BEGIN");
        for queue in ["first", "second"] {
            other.batch_execute(&provision(queue)).await.expect("a lane of the embedded storage");
        }
        attack.run(STATE).await;
        let refused = failure(other.batch_execute(&provision("third")).await);
        assert_eq!(refused.sqlstate, "55000", "{begin}: {refused:?}");
        other.batch_execute("ROLLBACK").await.expect("ROLLBACK");
        attack.assert_in_vain("provision_lane").await;
        let sql = "SELECT awa_ingest.analyze_relation('awa_ingest.ready_entries')";
        assert_eq!(failure(other.batch_execute(sql).await).sqlstate, "55000");
        attack.assert_in_vain("analyze_relation").await;
        attack.assert_trap_works("awa.storage_transition_state").await;
    }
}

/// The detail names both.
fn assert_names(refused: &Failure, names: &[&str]) {
    assert_eq!(refused.sqlstate, "55000", "{refused:?}");
    assert!(names.iter().all(|name| refused.detail.contains(name)), "{names:?}: {refused:?}");
}

/// Tables of another role, with a trap each: what the owner of a schema can put in the place of what is there.
fn replace(table: &str, role: &str) -> String {
    format!(
        "ALTER TABLE awa.{table} RENAME TO old_{table};
         CREATE TABLE awa.{table} (LIKE awa.old_{table} INCLUDING DEFAULTS);
         ALTER TABLE awa.{table} OWNER TO {role};
         SET LOCAL ROLE {role};
         CREATE INDEX ON awa.{table} ((1)) WHERE public.trap(true);
         RESET ROLE"
    )
}

/// Who owns the schema can drop what is in it, and put something else there.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_another_owner_is_refused() {
    let (db, owner) = Db::awa_of_a_role().await;
    let attack = Attack::on(db).await;
    attack.run(&provision("before")).await;
    attack.set_up(&format!("ALTER SCHEMA awa OWNER TO {}", attack.role)).await;
    assert_names(&failure(attack.client.batch_execute(&provision("after")).await), &["Schema awa", &attack.role, &owner]);
    let analyze = "SELECT awa_ingest.analyze_relation('awa.ready_entries')";
    assert_names(&failure(attack.client.batch_execute(analyze).await), &["Schema awa", &attack.role, &owner]);
    let sql = "SELECT ready, problem FROM awa_ingest.status()";
    let status = attack.superuser.query_one(sql, &[]).await.expect(sql);
    assert!(!status.get::<_, bool>(0) && status.get::<_, String>(1).contains(&attack.role), "{status:?}");
    attack.set_up(&format!("ALTER SCHEMA awa OWNER TO {owner}")).await;
    attack.run(&provision("after")).await;
}

/// A table is replaced while the call waits for it: what it then finds is another role's.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_replaced_meanwhile_is_not_touched() {
    for table in ["storage_transition_state", "queue_lanes", "queue_enqueue_heads", "queue_claim_heads", "ready_segments"] {
        let (db, _) = Db::awa_of_a_role().await;
        let attack = Attack::on(db).await;
        let caller = attack.db.connect_as(&attack.role).await;
        caller.batch_execute(&provision("before")).await.expect("nothing is replaced yet");
        let pid = backend_pid(&caller).await;
        attack.set_up(&format!("BEGIN; {}", replace(table, &attack.role))).await;
        let call = tokio::spawn(async move { caller.batch_execute(&provision("after")).await });
        wait_until_blocked(&attack.db.connect().await, pid).await;
        attack.set_up("COMMIT").await;
        assert_names(&failure(call.await.expect("the call ends")), &[&format!("awa.{table}"), &attack.role]);
        attack.assert_in_vain(table).await;
        attack.assert_trap_works(&format!("awa.{table}")).await;
    }
}

/// The same for the function that makes sequences, which no lock on a table keeps in place.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_another_owner_is_not_called() {
    let (db, owner) = Db::awa_of_a_role().await;
    let attack = Attack::on(db).await;
    let function = "awa.ensure_lane_sequences(text, smallint, smallint)";
    attack.set_up(&format!("ALTER FUNCTION {function} RENAME TO old")).await;
    attack
        .run(
            "CREATE FUNCTION awa.ensure_lane_sequences(text, smallint, smallint) RETURNS void LANGUAGE plpgsql AS
                'BEGIN PERFORM public.trap(true); END'",
        )
        .await;
    let triggers =
        "ALTER TABLE awa.queue_enqueue_heads DISABLE TRIGGER USER; ALTER TABLE awa.queue_claim_heads DISABLE TRIGGER USER";
    attack.set_up(triggers).await;
    let refused = failure(attack.client.batch_execute(&provision("q")).await);
    assert_names(&refused, &["ensure_lane_sequences", &attack.role, &owner]);
    attack.assert_in_vain(function).await;
}

/// A call holds what it found: nobody replaces the function, or the schema, before it ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_stays_until_the_end() {
    let (db, owner) = Db::awa_of_a_role().await;
    let attack = Attack::on(db).await;
    attack.set_up(&format!("BEGIN; {}", provision("q"))).await;
    let client = attack.db.connect_as(&owner).await;
    for statement in [
        "ALTER FUNCTION awa.ensure_lane_sequences(text, smallint, smallint) RENAME TO old",
        "DROP SCHEMA awa CASCADE",
        "ALTER TABLE awa.queue_lanes RENAME TO old",
        "CREATE TRIGGER new BEFORE INSERT ON awa.queue_lanes FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "ALTER TABLE awa.storage_transition_state RENAME TO old",
        "ALTER TABLE awa.ready_segments RENAME TO old",
    ] {
        let statement = format!("SET lock_timeout = 50; {statement}");
        assert_eq!(failure(client.batch_execute(&statement).await).sqlstate, "55P03", "{statement}");
    }
    attack.set_up("COMMIT").await;
}

/// A part of a table that belongs to another role runs that role's code when the table is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_another_owner_is_refused() {
    let (db, owner) = Db::awa_of_a_role().await;
    let attack = Attack::on(db).await;
    attack
        .set_up(&format!("CREATE TABLE awa.child () INHERITS (awa.queue_lanes); ALTER TABLE awa.child OWNER TO {}", attack.role))
        .await;
    attack.run("CREATE INDEX ON awa.child (queue) WHERE public.trap(true)").await;
    assert_names(&failure(attack.client.batch_execute(&provision("q")).await), &["child", &attack.role, &owner]);
    attack.set_up(&format!("DROP TABLE awa.child; ALTER TABLE awa.ready_segments_3 OWNER TO {}", attack.role)).await;
    assert_names(&failure(attack.client.batch_execute(&provision("q")).await), &["ready_segments_3", &attack.role, &owner]);
    attack.assert_in_vain("children").await;
}

/// The right to make triggers can be granted, as GRANT ALL does: what they run, they run as who writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_of_another_role_is_not_run() {
    let attack = Attack::on(Db::awa().await).await;
    attack.set_up(&format!("GRANT ALL ON ALL TABLES IN SCHEMA awa TO {}", attack.role)).await;
    attack
        .run(
            "CREATE FUNCTION public.trap_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.rise(); RETURN NEW; END $$;
             CREATE TRIGGER trap BEFORE INSERT ON awa.queue_lanes FOR EACH ROW EXECUTE FUNCTION public.trap_row()",
        )
        .await;
    assert_names(&failure(attack.client.batch_execute(&provision("q")).await), &["trap_row", "queue_lanes", &attack.role]);
    attack.assert_in_vain("a trigger").await;
    attack.run("DROP FUNCTION public.trap_row CASCADE").await;
    attack.run(&provision("q")).await;
}

/// What a superuser calls or looks at.
const CALLS: [&str; 14] = [
    "SELECT * FROM awa_ingest.status()",
    "SELECT awa_ingest.attach()",
    "SELECT awa_ingest.last_ingest_jobs()",
    "SELECT awa_ingest.grant_producer('{role}')",
    "SELECT awa_ingest.grant_operator('{role}')",
    "SELECT awa_ingest.adopt()",
    "SELECT * FROM awa_ingest.lanes",
    "SELECT * FROM awa_ingest.rings",
    "SELECT * FROM awa_ingest.stalled_lanes",
    "SELECT * FROM awa_ingest.run_maintenance('lanes')",
    "SELECT * FROM awa_ingest.lane_sequence_problems()",
    "SELECT awa_ingest.repair_lane_sequence('awa', (SELECT relname FROM pg_class WHERE relname LIKE 'queue\\_enqueue\\_seq%' LIMIT 1))",
    "SELECT * FROM awa_ingest.run_maintenance('prune')",
    "SELECT awa_ingest.detach()",
];

/// The owner of awa's tables has traps in all of them: no superuser who calls must run into one.
#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_runs_no_code_of_the_storages_owner() {
    let (db, owner) = Db::awa_of_a_role().await;
    let superuser = db.connect().await;
    let trapped = superuser
        .query_one(
            "SELECT string_agg(format('CREATE INDEX ON %s ((1)) WHERE public.trap(true)', oid::regclass), ';')
               FROM pg_class WHERE relnamespace = 'awa'::regnamespace AND relkind IN ('r', 'p')",
            &[],
        )
        .await
        .expect("the tables")
        .get::<_, String>(0);
    let traps = format!(
        "CREATE SCHEMA own AUTHORIZATION {owner}; GRANT CREATE ON SCHEMA public TO {owner};
         CREATE SEQUENCE public.sprung; GRANT ALL ON SEQUENCE public.sprung TO PUBLIC;
         SET ROLE {owner};
         CREATE FUNCTION public.rise() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
             IF current_user <> '{owner}' THEN PERFORM pg_catalog.nextval('public.sprung'); END IF;
             RETURN true; END $$;
         CREATE FUNCTION public.trap(boolean) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN public.rise(); END $$;
         CREATE FUNCTION public.trap_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.rise(); RETURN NEW; END $$;
         RESET ROLE"
    );
    superuser.batch_execute(&traps).await.expect(&traps);
    // A lane, a job in the last COPY, and one that waits in the embedded storage.
    for statement in [
        "ALTER TABLE awa.storage_transition_state RENAME TO hidden",
        "SELECT awa.enqueue('k', queue => 'embedded')",
        "ALTER TABLE awa.hidden RENAME TO storage_transition_state",
        "INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'q')",
    ] {
        superuser.batch_execute(statement).await.expect(statement);
    }
    let own = db.connect_as(&owner).await;
    own.batch_execute(&trapped).await.expect(&trapped);
    own.batch_execute(
        "CREATE TRIGGER a_trap BEFORE INSERT ON awa.ready_entries_0 FOR EACH ROW EXECUTE FUNCTION public.trap_row();
         CREATE TRIGGER a_trap BEFORE INSERT ON awa.queue_lanes FOR EACH ROW EXECUTE FUNCTION public.trap_row();
         CREATE TRIGGER a_trap BEFORE INSERT ON awa.ready_segments_0 FOR EACH ROW EXECUTE FUNCTION public.trap_row()",
    )
    .await
    .expect("triggers");
    let role = db.role("grantee").await;
    for call in CALLS {
        let call = call.replace("{role}", &role);
        // One that was made before the traps, as its memory is of the last INSERT; and one whose caches are empty.
        for client in [&superuser, &db.connect().await] {
            client.batch_execute(&call).await.unwrap_or_else(|error| panic!("{call}: {error:?}"));
            let sprung: bool = own.query_one("SELECT is_called FROM public.sprung", &[]).await.expect("sprung").get(0);
            assert!(!sprung, "{call}");
        }
    }
    assert_eq!(superuser.query_one("SELECT count(*) FROM awa_ingest.ready_entries", &[]).await.unwrap().get::<_, i64>(0), 0);
    superuser.batch_execute("SELECT FROM awa.queue_lanes WHERE true").await.expect("a query");
    let sprung: bool = own.query_one("SELECT is_called FROM public.sprung", &[]).await.expect("sprung").get(0);
    assert!(sprung, "the traps work");
}

/// Who may create in the extension's schema must not stand between it and its callers.
#[tokio::test(flavor = "multi_thread")]
async fn functions_beside_the_extensions_are_not_called() {
    let attack = Attack::on(Db::awa().await).await;
    attack.set_up("SELECT awa.enqueue('k', queue => 'q')").await;
    attack
        .run(
            "CREATE FUNCTION awa_ingest.sequence_position(oid) RETURNS bigint LANGUAGE plpgsql AS
                'BEGIN PERFORM public.trap(true); RETURN 1; END';
             CREATE FUNCTION awa_ingest.last_ingest_jobs() RETURNS SETOF awa.jobs LANGUAGE sql AS 'SELECT NULL::awa.jobs'",
        )
        .await;
    attack
        .set_up("SELECT * FROM awa_ingest.lanes; SELECT * FROM awa_ingest.lane_sequence_problems(); SELECT * FROM awa_ingest.rings")
        .await;
    attack.assert_in_vain("an overload").await;
    let refused = failure(attack.superuser.batch_execute("SELECT awa_ingest.attach()").await);
    assert_names(&refused, &["last_ingest_jobs"]);
    assert_ne!(owner_of_awa(&attack.db).await, attack.role);
}
