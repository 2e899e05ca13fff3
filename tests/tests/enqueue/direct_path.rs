//! Ready rows are written past the executor where that changes nothing, and through it where somebody's rules are in the way: both give
//! the same rows, and both keep what the tables' owner has declared.

use awa_ingest_tests::{Failure, Storage, assert_same_rows, failure, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// The partition that a fresh storage writes to.
const SLOT: &str = "ready_entries_0";

/// More jobs than a batch of the direct path takes, of all kinds and sizes.
fn jobs() -> Value {
    let job = |n: usize| {
        json!({
            "kind": format!("kind{}", n % 7),
            "queue": format!("queue{}", n % 3),
            "priority": 1 + n % 4,
            "max_attempts": 1 + n % 1000,
            "args": match n % 5 { 0 => json!(n), 1 => json!(null), 2 => json!({"n": n, "text": "ü\"\n"}), 3 => json!([[], {}, n]), _ => json!("x".repeat(n)) },
            "metadata": if n.is_multiple_of(2) { json!({}) } else { json!({"m": n, "deep": [{"a": null}]}) },
            "tags": if n.is_multiple_of(3) { json!([]) } else { json!(["tag", "", n.to_string()]) },
            "state": "available",
            "run_at": if n.is_multiple_of(11) { "yesterday" } else { "tomorrow" },
            "unique": if n.is_multiple_of(4) { json!({"unique_key": format!("{n:08x}"), "unique_states": "10000000"}) } else { json!(null) },
        })
    };
    let big = json!({"kind": "big", "state": "available", "run_at": "tomorrow", "args": "x".repeat(300_000), "metadata": {"y": "y".repeat(100_000)}});
    (0..2500).map(job).chain([big]).collect()
}

async fn enqueue(client: &Client, jobs: &Value) -> Result<u64, Failure> {
    client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[jobs]).await.map_err(Failure::from)
}

async fn stored(client: &Client, storage: Storage) -> Vec<Value> {
    let table = format!("(SELECT *, md5(args::text) AS whole FROM {} ORDER BY lane_seq)", storage.table("ready_entries"));
    rows(client, &table, &["job_id", "created_at", "args"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ways_give_the_same_rows() {
    for storage in Storage::BOTH {
        let (direct, through) = (storage.db().await, storage.db().await);
        let (direct, through) = (direct.connect().await, through.connect().await);
        through
            .batch_execute(&format!(
                "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
                 CREATE TRIGGER keep BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION keep()",
                storage.table("ready_entries")
            ))
            .await
            .unwrap();
        for client in [&direct, &through] {
            enqueue(client, &jobs()).await.unwrap();
        }
        let expected = stored(&through, storage).await;
        assert_eq!(expected.len(), 2501);
        assert_same_rows(&format!("{storage:?}"), &expected, &stored(&direct, storage).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_find_every_row() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let table = storage.table(SLOT);
        client
            .batch_execute(&format!(
                "CREATE INDEX partial ON {table} (upper(kind)) WHERE priority = 1; CREATE INDEX hashed ON {table} USING hash (job_id)"
            ))
            .await
            .unwrap();
        enqueue(&client, &jobs()).await.unwrap();
        let counts = format!(
            "SELECT (SELECT count(*) FROM {table} AS one JOIN {table} AS other ON other.job_id = one.job_id),
                    (SELECT count(*) FROM {table} WHERE upper(kind) = 'KIND0' AND priority = 1),
                    (SELECT count(*) FROM {table} AS one JOIN {table} AS other USING (queue, priority, enqueue_shard, lane_seq))"
        );
        let mut found = Vec::new();
        for off in
            ["enable_indexscan, enable_bitmapscan, enable_indexonlyscan", "enable_seqscan, enable_hashjoin, enable_mergejoin"]
        {
            let set: String = off.split(", ").map(|setting| format!("SET LOCAL {setting} = off; ")).collect();
            client.batch_execute(&format!("BEGIN; {set}")).await.unwrap();
            let row = client.query_one(&counts, &[]).await.unwrap();
            found.push([0, 1, 2].map(|column| row.get::<_, i64>(column)));
            client.batch_execute("COMMIT").await.unwrap();
        }
        assert_eq!(found[0], found[1], "{storage:?}");
        assert_eq!((found[0][0], found[0][2]), (2501, 2501), "{storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_hold() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let table = storage.table(SLOT);
        let cases = [
            (format!("ALTER TABLE {table} ADD CONSTRAINT good_kind CHECK (kind <> 'big')"), "23514", "good_kind"),
            (format!("ALTER TABLE {table} ALTER payload SET NOT NULL"), "23502", ""),
            (format!("CREATE UNIQUE INDEX one_of_each ON {table} (kind)"), "23505", "one_of_each"),
        ];
        for (rule, sqlstate, constraint) in cases {
            client.batch_execute(&format!("BEGIN; {rule}")).await.unwrap();
            let refused = enqueue(&client, &jobs()).await.unwrap_err();
            assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), (sqlstate, constraint), "{rule}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        let moved = format!("ALTER TABLE {} DETACH PARTITION {table}", storage.table("ready_entries"));
        client
            .batch_execute(&format!(
                "BEGIN; {moved}; ALTER TABLE {} ATTACH PARTITION {table} FOR VALUES IN (99)",
                storage.table("ready_entries")
            ))
            .await
            .unwrap();
        let refused = failure(client.execute("SELECT awa.enqueue('k')", &[]).await);
        assert_eq!(refused.sqlstate, "23514", "the partition's bound: {refused:?}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_the_owner_get_their_defaults() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let table = storage.table("ready_entries");
        let columns = format!(
            "ALTER TABLE {table} ADD note text DEFAULT 'noted', ADD size integer GENERATED ALWAYS AS (length(kind)) STORED"
        );
        client.batch_execute(&columns).await.unwrap();
        client.execute("SELECT awa.enqueue('four')", &[]).await.unwrap();
        let found = rows(&client, &format!("(SELECT note, size FROM {table})"), &[]).await;
        assert_eq!(found, [json!({"note": "noted", "size": 4})], "{storage:?}");
    }
}

/// The embedded tables' triggers for replicas are no reason to leave the direct path.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_for_replicas_are_not_in_the_way() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let sql = format!(
            "CREATE FUNCTION is_direct(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
             DECLARE context text;
             BEGIN
                 GET DIAGNOSTICS context = PG_CONTEXT;
                 RETURN context !~ 'INSERT INTO';
             END $$;
             ALTER TABLE {} ADD CONSTRAINT is_direct CHECK (is_direct(kind))",
            storage.table(SLOT)
        );
        client.batch_execute(&sql).await.unwrap();
        enqueue(&client, &json!([{"kind": "step"}])).await.unwrap_or_else(|error| panic!("{storage:?}: {error:?}"));
        // What the session is set to counts as little for the statements.
        client.batch_execute("SET session_replication_role = replica").await.unwrap();
        enqueue(&client, &json!([{"kind": "step"}])).await.unwrap_or_else(|error| panic!("{storage:?}: {error:?}"));
    }
}
