//! A producer has what `awa_ingest.grant_producer` gives, and nothing else has anything.

use awa_ingest_tests::{Db, Storage, assert_same_rows, failure, jobs, rows};
use awa_model::InsertOpts;
use serde_json::{Value, json};
use tokio_postgres::Client;

/// Storages that belong to a superuser, and one that belongs to an ordinary role, as most awa databases do.
async fn databases() -> Vec<(Storage, Db)> {
    vec![
        (Storage::Embedded, Storage::Embedded.db().await),
        (Storage::Attached, Storage::Attached.db().await),
        (Storage::Attached, awa_of_an_ordinary_role().await),
    ]
}

async fn awa_of_an_ordinary_role() -> Db {
    let db = Db::bare().await;
    let owner = db.role("owner").await;
    let superuser = db.connect().await;
    superuser.batch_execute(&format!("GRANT CREATE ON DATABASE {} TO {owner}", db.name())).await.unwrap();
    let pool = sqlx::PgPool::connect(&db.url_of(&owner)).await.unwrap();
    awa_model::migrations::run(&pool).await.expect("awa migrate");
    pool.close().await;
    db.connect_as(&owner).await.batch_execute("SELECT awa.storage_auto_finalize_if_fresh('awa')").await.unwrap();
    superuser.batch_execute("CREATE EXTENSION awa_ingest").await.unwrap();
    db
}

/// A connection of a new role that has nothing but the grant.
async fn producer(db: &Db, name: &str) -> Client {
    let role = db.role(name).await;
    db.connect().await.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect("grant_producer");
    db.connect_as(&role).await
}

/// Everything a producer does, on lanes of its own (`queue`) and on the default ones.
async fn produce(client: &Client, queue: &str) {
    let opts = |priority| InsertOpts { queue: queue.into(), priority, ..Default::default() };
    jobs::enqueue(client, &jobs::job("plain", json!({}))).await;
    jobs::enqueue(client, &jobs::job_with("plain", json!({}), opts(1))).await;
    let unique = jobs::job_with("once", json!(queue), InsertOpts { unique: Some(Default::default()), ..opts(2) });
    let later = InsertOpts { run_at: Some(chrono::Utc::now()), metadata: json!({"m": 1}), tags: vec!["t".into()], ..opts(3) };
    let batch = [jobs::job("plain", json!({})), unique.clone(), jobs::job_with("later", json!({}), later)];
    jobs::enqueue_batch(client, &batch).await;
    let again = jobs::try_enqueue_batch(client, &batch, "skip").await.expect("skip");
    assert!(again[1].conflicts_with.is_some() && again[2].job_id.is_some());
    let refused = failure(jobs::try_enqueue_columns(client, &batch, "error").await);
    assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"));
    jobs::try_enqueue_columns(client, &batch, "skip").await.expect("columns");
    client.execute("SELECT awa_ingest.provision_lane($1, 9::smallint, 63::smallint)", &[&queue]).await.expect("provision_lane");
    let ready: bool = client.query_one("SELECT ready FROM awa_ingest.status()", &[]).await.unwrap().get(0);
    assert!(ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_use_each_others_lanes() {
    for (storage, db) in databases().await {
        let (first, second) = (producer(&db, "first").await, producer(&db, "second").await);
        produce(&first, "of the first").await;
        produce(&second, "of the second").await;
        jobs::enqueue_batch(&first, &[in_queue("of the second")]).await;
        jobs::enqueue_batch(&second, &[in_queue("of the first"), in_queue("of both")]).await;
        jobs::enqueue_batch(&first, &[in_queue("of both"), in_queue("of the superuser")]).await;
        jobs::enqueue_batch(&db.connect().await, &[in_queue("of the superuser"), in_queue("of the superuser's own")]).await;
        // Granted after these lanes were made.
        jobs::enqueue_batch(&producer(&db, "third").await, &[in_queue("of both"), in_queue("of the superuser's own")]).await;
        assert_lanes_belong_to_the_storage(&db.connect().await, storage).await;
    }
}

fn in_queue(queue: &str) -> awa_model::InsertParams {
    jobs::job_with("plain", json!({}), InsertOpts { queue: queue.into(), priority: 2, ..Default::default() })
}

/// Every lane sequence has the schema's owner, and the grantees of the head table that it backs.
async fn assert_lanes_belong_to_the_storage(client: &Client, storage: Storage) {
    let sequences = |side: &str| {
        format!(
            "(SELECT DISTINCT pg_get_userbyid(s.relowner) AS owner, acl.grantee
                FROM {heads} AS h JOIN pg_class AS s ON s.relname = h.seq_name AND s.relkind = 'S'
                JOIN pg_namespace AS n ON n.oid = s.relnamespace AND n.nspname = '{schema}'
                CROSS JOIN LATERAL aclexplode(coalesce(s.relacl, acldefault('s', s.relowner))) AS acl)",
            heads = storage.table(&format!("queue_{side}_heads")),
            schema = storage.schema(),
        )
    };
    let expected = |side: &str| {
        format!(
            "(SELECT DISTINCT pg_get_userbyid(nspowner) AS owner, acl.grantee FROM pg_namespace
                JOIN pg_class AS h ON h.oid = '{}'::regclass
                CROSS JOIN LATERAL aclexplode(coalesce(h.relacl, acldefault('r', h.relowner))) AS acl WHERE nspname = '{}')",
            storage.table(&format!("queue_{side}_heads")),
            storage.schema(),
        )
    };
    for side in ["enqueue", "claim"] {
        let (expected, found) = (rows(client, &expected(side), &[]).await, rows(client, &sequences(side), &[]).await);
        assert_same_rows(&format!("owner and grantees of {side} sequences"), &expected, &found);
    }
}

/// What a producer must not do, as statements with `{s}` for the storage's schema.
const FORBIDDEN: [&str; 30] = [
    "SELECT args FROM {s}.ready_entries",
    "SELECT args FROM {s}.ready_entries_0",
    "SELECT args FROM {s}.deferred_jobs",
    "UPDATE {s}.ready_segments SET first_run_at = now()",
    "UPDATE {s}.ready_entries SET priority = 1",
    "UPDATE {s}.deferred_jobs SET priority = 1",
    "UPDATE {s}.job_unique_claims SET job_id = 1",
    "UPDATE {s}.queue_ring_state SET generation = 9",
    "UPDATE {s}.queue_enqueue_heads SET seq_name = NULL",
    "DELETE FROM {s}.ready_entries",
    "DELETE FROM {s}.ready_entries_0",
    "DELETE FROM {s}.ready_segments",
    "DELETE FROM {s}.deferred_jobs",
    "DELETE FROM {s}.job_unique_claims",
    "DELETE FROM {s}.queue_lanes",
    "DELETE FROM {s}.queue_meta",
    "TRUNCATE {s}.ready_entries",
    "TRUNCATE {s}.deferred_jobs",
    "INSERT INTO {s}.queue_meta (queue, enqueue_shards) VALUES ('q', 2)",
    "INSERT INTO {s}.queue_lanes (queue, priority) VALUES ('q', 2)",
    "INSERT INTO {s}.queue_claim_heads (queue, priority) VALUES ('q', 2)",
    "INSERT INTO {s}.queue_ring_state (current_slot, generation, slot_count) VALUES (1, 1, 16)",
    "SELECT setval('{s}.job_id_seq', 1)",
    "CREATE TABLE {s}.mine (i int)",
    "CREATE TABLE awa.mine (i int)",
    "CREATE FUNCTION awa.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE TABLE awa_ingest.mine (i int)",
    "SELECT awa_ingest.grant_producer(current_user)",
    "SELECT awa_ingest.ensure_lane_sequences('q', 1::smallint, 0::smallint)",
    "DROP EXTENSION awa_ingest",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_can_do_nothing_else() {
    for (storage, db) in databases().await {
        let client = producer(&db, "producer").await;
        produce(&client, "some queue").await;
        // The guard of waiting jobs comes before the question of who may drop.
        let superuser = db.connect().await;
        superuser.batch_execute(&format!("ALTER DATABASE {} SET awa_ingest.allow_drop = on", db.name())).await.unwrap();
        let client = reconnect(&db, client).await;
        for statement in FORBIDDEN {
            let statement = statement.replace("{s}", storage.schema());
            assert_eq!(failure(client.batch_execute(&statement).await).sqlstate, "42501", "{statement}, {storage:?}");
        }
        let claims = format!("SELECT setval('{}.' || seq_name, 1) FROM {}", storage.schema(), storage.table("queue_claim_heads"));
        let names = format!("SELECT seq_name FROM {}", storage.table("queue_claim_heads"));
        assert_eq!(failure(client.query(&claims, &[]).await).sqlstate, "42501");
        for row in superuser.query(&names, &[]).await.unwrap() {
            let take = format!("SELECT nextval('{}')", storage.table(row.get(0)));
            assert_eq!(failure(client.query(&take, &[]).await).sqlstate, "42501", "{take}");
        }
    }
}

/// The same role in a new session, for settings of the database.
async fn reconnect(db: &Db, client: Client) -> Client {
    let role: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    db.connect_as(&role).await
}

const CALLS: [&str; 5] = [
    "SELECT awa.enqueue('k')",
    r#"SELECT * FROM awa.enqueue_batch('[{"kind": "k"}]')"#,
    "SELECT * FROM awa.enqueue_columns('{k}')",
    "SELECT awa_ingest.provision_lane('q', 2::smallint, 0::smallint)",
    "SELECT * FROM awa_ingest.status()",
];

#[tokio::test(flavor = "multi_thread")]
async fn without_the_grant_there_is_nothing() {
    for (storage, db) in databases().await {
        let superuser = db.connect().await;
        let role = db.role("nobody").await;
        let client = db.connect_as(&role).await;
        let assert_all_refused = async |stage: &str, calls: &[&str]| {
            for call in calls {
                assert_eq!(failure(client.batch_execute(call).await).sqlstate, "42501", "{stage}: {call}, {storage:?}");
            }
        };
        assert_all_refused("no rights at all", &CALLS).await;
        superuser.batch_execute(&format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}")).await.unwrap();
        assert_all_refused("the schemas only", &CALLS).await;
        // Functions run with the caller's rights: EXECUTE is not enough. A lane is harmless, and status depends on the mode.
        let execute = format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA awa, awa_ingest TO {role}");
        superuser.batch_execute(&execute).await.unwrap();
        assert_all_refused("the functions, but not the tables", &CALLS[..3]).await;
        for table in ["ready_entries", "deferred_jobs", "job_unique_claims"] {
            assert_eq!(rows(&superuser, &storage.table(table), &[]).await, Vec::<Value>::new(), "{storage:?}");
        }
    }
}

/// One right less than `grant_producer` gives, and a job is refused and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn each_right_is_checked() {
    let everything = json!([{"kind": "k", "unique": true}, {"kind": "k", "run_at": "2030-01-01"}]);
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let superuser = db.connect().await;
        let client = producer(&db, "producer").await;
        let role: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
        client.execute("SELECT awa.enqueue('first')", &[]).await.unwrap();
        let partitions = format!("{}, {}", storage.table("ready_entries"), storage.table("ready_entries_0"));
        let revocations = [
            ("INSERT", partitions.as_str()),
            ("INSERT", &storage.table("deferred_jobs")),
            ("INSERT", &storage.table("job_unique_claims")),
            ("SELECT", &storage.table("queue_ring_state")),
            ("SELECT", &storage.table("queue_meta")),
            ("USAGE", &format!("SEQUENCE {}", storage.table("job_id_seq"))),
            ("USAGE", &format!("SCHEMA {}", storage.schema())),
        ];
        for (right, object) in revocations {
            superuser.batch_execute(&format!("REVOKE {right} ON {object} FROM {role}")).await.unwrap();
            let refused = failure(client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&everything]).await);
            assert_eq!(refused.sqlstate, "42501", "{right} on {object}, {storage:?}: {refused:?}");
            superuser.batch_execute(&format!("GRANT {right} ON {object} TO {role}")).await.unwrap();
        }
        assert_eq!(client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&everything]).await.unwrap().len(), 2);
        assert_eq!(rows(&superuser, &storage.table("job_unique_claims"), &[]).await.len(), 1);
    }
}

/// Rights on the parent are enough where somebody took those on the partitions away.
#[tokio::test(flavor = "multi_thread")]
async fn rights_on_the_partitioned_table_are_enough() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = producer(&db, "producer").await;
        let role: String = client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
        let partitions = [storage.table("ready_entries_0"), storage.table("ready_segments_0")].join(", ");
        db.connect().await.batch_execute(&format!("REVOKE ALL ON {partitions} FROM {role}")).await.unwrap();
        produce(&client, "by the parent").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn role_names_of_any_kind() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        for name in ["Upper Case", "quo\"te'd", "ünïcode", "select", "with\\backslash"] {
            let role = format!("{name} {}", db.name());
            let quoted = format!("\"{}\"", role.replace('"', "\"\""));
            client.batch_execute(&format!("CREATE ROLE {quoted}")).await.unwrap();
            client.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.expect(&role);
            client.batch_execute(&format!("SET ROLE {quoted}")).await.unwrap();
            produce(&client, name).await;
            client.batch_execute("RESET ROLE").await.unwrap();
        }
        for unknown in [Some("no_such_role"), Some("public"), Some(""), Some("postgres; DROP TABLE x"), None] {
            let refused = failure(client.execute("SELECT awa_ingest.grant_producer($1)", &[&unknown]).await);
            assert_eq!(refused.sqlstate, "42704", "{unknown:?}: {refused:?}");
        }
    }
}
