//! What an INSERT costs belongs to it: for EXPLAIN (ANALYZE), pg_stat_statements, and triggers, which come behind it.

use awa_ingest_tests::copy::{last_ingest, last_summary};
use awa_ingest_tests::{Cluster, Db, Session, Storage, Template, rows, stored_kinds, wait_until_blocked};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// The plan of an INSERT that was run, as JSON.
async fn plan(client: &Client, options: &str, insert: &str) -> Value {
    let explain = format!("EXPLAIN (ANALYZE, {options}, FORMAT json) {insert}");
    let plan: Value = client.query_one(&explain, &[]).await.unwrap_or_else(|error| panic!("{explain}: {error:?}")).get(0);
    plan[0]["Plan"].clone()
}

fn count(node: &Value, what: &str) -> i64 {
    node[what].as_i64().unwrap_or_else(|| panic!("no {what}: {node}"))
}

const PARTITIONS: &str = "
    CREATE TABLE jobs (kind text, queue text, job_id bigint) PARTITION BY LIST (queue);
    CREATE FOREIGN TABLE jobs_a PARTITION OF jobs FOR VALUES IN ('a') SERVER awa_ingest OPTIONS (batch_size '100');
    CREATE TABLE jobs_local PARTITION OF jobs FOR VALUES IN ('local');
    CREATE FOREIGN TABLE jobs_b PARTITION OF jobs FOR VALUES IN ('b') SERVER awa_ingest;
    CREATE FOREIGN TABLE batched (kind text) SERVER awa_ingest OPTIONS (batch_size '100')";

/// Rows, segments and sequences are written inside the node that EXPLAIN times, not behind it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_counted_in_the_node() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(PARTITIONS).await.unwrap();
        let mut expected = 0;
        for insert in [
            "INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 50)",
            "INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 50) RETURNING job_id",
            "INSERT INTO awa.ingest_skip_conflicts (kind) SELECT 'k' FROM generate_series(1, 50) RETURNING job_id",
            "INSERT INTO batched (kind) SELECT 'k' FROM generate_series(1, 50)",
            "INSERT INTO jobs (kind, queue) SELECT 'k', (ARRAY['a', 'b'])[1 + n % 2] FROM generate_series(1, 50) AS n",
            "INSERT INTO jobs (kind, queue) SELECT 'k', 'a' FROM generate_series(1, 50) AS n RETURNING job_id",
        ] {
            let node = plan(&client, "BUFFERS, WAL", insert).await;
            assert_eq!(node["Node Type"], "ModifyTable", "{node}");
            // A batch of jobs is one record or few, so that the indexes make most of them.
            assert!(count(&node, "WAL Records") > 50, "{storage:?}: {insert}: {node}");
            assert!(count(&node, "Shared Hit Blocks") > 50, "{storage:?}: {insert}: {node}");
            let below = &node["Plans"][0];
            assert_eq!(count(below, "WAL Records"), 0, "{storage:?}: {insert}: {node}");
            expected += 50;
            assert_eq!(stored_kinds(&client, storage).await.len(), expected, "{storage:?}: {insert}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_what_was_done() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let insert = "INSERT INTO awa.ingest_skip_conflicts (kind, args, queue, uniqueness)
            SELECT 'k', to_jsonb(n % 7), 'q' || n % 2, 'true' FROM generate_series(1, 10) AS n";
        let shown = |node: &Value| {
            ["Storage Schema", "Jobs", "Jobs Written Together", "Jobs Skipped", "Lanes", "Spool"].map(|what| node[what].clone())
        };
        let node = plan(&client, "TIMING", insert).await;
        assert_eq!(json!(shown(&node)), json!([storage.schema(), 10, 10, 3, 2, "Memory"]), "{node}");
        assert!(node["Lane Lock Wait"].is_f64(), "{node}");
        // Looked at row by row.
        let node = plan(&client, "TIMING off", &format!("{insert} RETURNING job_id")).await;
        assert_eq!(json!(shown(&node)), json!([storage.schema(), 10, 10, 10, 0, "Memory"]), "{node}");
        assert_eq!(node.get("Lane Lock Wait"), None, "{node}");

        let both = "WITH a AS (INSERT INTO awa.ingest (kind) VALUES ('a')) INSERT INTO awa.ingest (kind) VALUES ('b'), ('c')";
        let node = plan(&client, "TIMING off", both).await;
        assert_eq!(json!(shown(&node)), json!([storage.schema(), 2, 3, 0, 1, "Memory"]), "{node}");
        let none = plan(&client, "TIMING off", "INSERT INTO awa.ingest (kind) SELECT 'k' WHERE false").await;
        assert_eq!((count(&none, "Jobs"), none.get("Lanes")), (0, None));

        let text = |sql: String| {
            let client = &client;
            async move { client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect::<Vec<String>>() }
        };
        client.batch_execute("SET awa_ingest.batch_memory = '64kB'").await.unwrap();
        let large = "INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 2000)";
        let lines = text(format!("EXPLAIN (ANALYZE, TIMING off) {large}")).await;
        let expected = [
            "  Jobs: 2000",
            &format!("  Storage Schema: {}", storage.schema()),
            "  Jobs Skipped: 0",
            "  Lanes: 1",
            "  Spool: Disk",
        ];
        assert_eq!(lines[1..6], expected, "{lines:?}");
        let lines = text(format!("EXPLAIN {large}")).await;
        assert!(!lines.iter().any(|line| line.contains("Jobs")), "nothing is known before it is run: {lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_the_wait_for_a_lane() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (session, holder) = (Session::open(&db).await, db.connect().await);
        holder.batch_execute("BEGIN; INSERT INTO awa.ingest (kind) VALUES ('k')").await.unwrap();
        let observer = db.connect().await;
        let explain = plan(&session.client, "TIMING", "INSERT INTO awa.ingest (kind) VALUES ('k')");
        let release = async {
            wait_until_blocked(&observer, session.pid).await;
            holder.batch_execute("COMMIT").await.unwrap();
        };
        let (node, ()) = tokio::join!(explain, release);
        let waited = node["Lane Lock Wait"].as_f64().unwrap();
        assert!(waited > 0.0 && waited <= node["Actual Total Time"].as_f64().unwrap(), "{node}");
    }
}

/// The statement has its buffers and WAL, and what it runs inside counts as inner.
#[tokio::test(flavor = "multi_thread")]
async fn pg_stat_statements_counts_it() {
    let cluster = Cluster::start(&[
        ("shared_preload_libraries", "pg_stat_statements"),
        ("pg_stat_statements.track", "all"),
        ("wal_level", "replica"),
    ]);
    for storage in Storage::BOTH {
        let template = if storage == Storage::Embedded { Template::Embedded } else { Template::Awa };
        let db = Db::on(cluster.clone(), template).await;
        let client = db.connect().await;
        client.batch_execute("CREATE EXTENSION pg_stat_statements").await.unwrap();
        client.batch_execute(PARTITIONS).await.unwrap();
        let two = "WITH a AS (INSERT INTO awa.ingest (kind) VALUES ('a')) INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 49)";
        for (insert, written) in [
            ("INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 50)", 50),
            ("INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 50) RETURNING job_id", 50),
            ("INSERT INTO jobs (kind, queue) SELECT 'k', 'b' FROM generate_series(1, 50)", 50),
            (two, 49),
        ] {
            client.batch_execute("SELECT pg_stat_statements_reset()").await.unwrap();
            client.batch_execute(insert).await.unwrap();
            let top = "SELECT query, calls, rows, wal_records, shared_blks_hit FROM pg_stat_statements
                WHERE toplevel AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
                    AND query NOT LIKE '%pg_stat_statements%'";
            let top = client.query(top, &[]).await.unwrap();
            let queries: Vec<&str> = top.iter().map(|row| row.get(0)).collect();
            assert_eq!(queries.len(), 1, "{insert}: inner statements count as the client's: {queries:?}");
            assert_eq!((top[0].get::<_, i64>(1), top[0].get::<_, i64>(2)), (1, written), "{insert}");
            assert!(top[0].get::<_, i64>(3) > 50 && top[0].get::<_, i64>(4) > 50, "{insert}: {:?}", top[0]);
        }
    }
}

/// Triggers behind the rows find the jobs; what they enqueue is not what the session remembers of the statement.
#[tokio::test(flavor = "multi_thread")]
async fn after_triggers_find_the_jobs() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let stored = storage.table("ready_entries");
        client
            .batch_execute(&format!(
                "CREATE TABLE parent (kind text, job_id bigint) PARTITION BY LIST (kind);
                 CREATE FOREIGN TABLE orders PARTITION OF parent DEFAULT SERVER awa_ingest OPTIONS (batch_size '10');
                 CREATE TABLE found (what text, jobs bigint);
                 CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO found SELECT TG_LEVEL, count(*) FROM {stored} AS job WHERE NEW IS NULL OR job.job_id = NEW.job_id;
                     INSERT INTO awa.ingest (kind) VALUES ('inner'), ('inner');
                     RETURN NULL; END $$;
                 CREATE TRIGGER look AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION look();
                 CREATE TRIGGER look_once AFTER INSERT ON parent FOR EACH STATEMENT EXECUTE FUNCTION look()"
            ))
            .await
            .unwrap();
        client.batch_execute("INSERT INTO orders VALUES ('a'), ('b'), ('c')").await.unwrap();
        let found = |what: &str| format!("(SELECT jobs FROM found WHERE what = '{what}')");
        assert_eq!(rows(&client, &found("ROW"), &[]).await, vec![json!({"jobs": 1}); 3], "{storage:?}");
        assert_eq!(last_summary(&client).await.expect("the statement's own").rows, 3, "{storage:?}");
        client.batch_execute("TRUNCATE found; INSERT INTO parent VALUES ('d'), ('e')").await.unwrap();
        assert_eq!(rows(&client, &found("ROW"), &[]).await, vec![json!({"jobs": 1}); 2], "{storage:?}");
        assert_eq!(rows(&client, &found("STATEMENT"), &[]).await, [json!({"jobs": 3 + 3 * 2 + 2 + 2 * 2})], "{storage:?}");
        assert_eq!(last_ingest(&client).await.len(), 2, "{storage:?}");
    }
}

/// One of the parts begins when the others are written.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_found_late_is_written() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(PARTITIONS).await.unwrap();
        let insert = "WITH first AS (INSERT INTO awa.ingest (kind) VALUES ('first') RETURNING job_id),
                second AS (INSERT INTO jobs SELECT 'second', 'a' FROM (SELECT count(*) FROM first) AS f RETURNING job_id),
                third AS (INSERT INTO jobs SELECT 'third', 'b' FROM (SELECT count(*) FROM second) AS s)
            SELECT (SELECT count(*) FROM first) + (SELECT count(*) FROM second)";
        assert_eq!(client.query_one(insert, &[]).await.unwrap().get::<_, i64>(0), 2);
        let mut kinds = stored_kinds(&client, storage).await;
        kinds.sort_unstable();
        assert_eq!(kinds, ["first", "second", "third"], "{storage:?}");
    }
}
