//! A statement that fills several foreign tables, partitions or targets of WITH, is one call: one order of lanes, one count of jobs.

use awa_ingest_tests::copy::{copy_csv, copy_in, last_ingest};
use awa_ingest_tests::{Cluster, Db, Session, Storage, Template, failure, rows, within};
use serde_json::{Value, json};
use tokio_postgres::Client;

const PARTITIONS: &str = "
    CREATE TABLE jobs (kind text, queue text, job_id bigint) PARTITION BY LIST (queue);
    CREATE FOREIGN TABLE jobs_a PARTITION OF jobs FOR VALUES IN ('a') SERVER awa_ingest;
    CREATE FOREIGN TABLE jobs_b PARTITION OF jobs FOR VALUES IN ('b') SERVER awa_ingest;
    CREATE FOREIGN TABLE jobs_c PARTITION OF jobs FOR VALUES IN ('c') SERVER awa_ingest OPTIONS (kind 'from option');
    CREATE FOREIGN TABLE jobs_none PARTITION OF jobs FOR VALUES IN ('none') SERVER awa_ingest;";

async fn summary(client: &Client) -> Vec<Value> {
    rows(client, "(SELECT rows, enqueued, skipped, lanes FROM awa.last_ingest_summary())", &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_counted_together() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(PARTITIONS).await.unwrap();
        let insert = "INSERT INTO jobs VALUES ('one', 'b'), ('two', 'a'), ('three', 'b'), (NULL, 'c') RETURNING kind, job_id";
        let returned = client.query(insert, &[]).await.unwrap();
        let ids: Vec<i64> = returned.iter().map(|row| row.get(1)).collect();
        assert_eq!(returned.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["one", "two", "three", "from option"]);
        assert_eq!(last_ingest(&client).await.into_iter().filter_map(|fate| fate.job_id).collect::<Vec<_>>(), ids);
        assert_eq!(summary(&client).await, [json!({"rows": 4, "enqueued": 4, "skipped": 0, "lanes": 3})]);

        copy_csv(&client, "jobs", "kind, queue", "x,a\ny,c\nz,a\n").await.unwrap();
        assert_eq!(summary(&client).await, [json!({"rows": 3, "enqueued": 3, "skipped": 0, "lanes": 2})]);
        let refused = failure(client.execute("INSERT INTO jobs VALUES ('one', 'b'), ('two', 'a'), (NULL, 'b')", &[]).await);
        assert_eq!((refused.sqlstate.as_str(), refused.ordinal()), ("23502", Some(3)), "{refused:?}");
        let count = format!("(SELECT count(*) FROM {})", storage.table("ready_entries"));
        assert_eq!(rows(&client, &count, &[]).await, [json!({"count": 7})], "{storage:?}");
    }
}

/// The lanes of both statements exist, and are touched in opposite order.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_in_opposite_order_do_not_deadlock() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let observer = db.connect().await;
        observer.batch_execute(PARTITIONS).await.unwrap();
        observer.batch_execute("INSERT INTO jobs VALUES ('k', 'a'), ('k', 'b')").await.unwrap();
        let sessions = [Session::open(&db).await, Session::open(&db).await];
        for round in 0..20 {
            let [first, second] = ["a,b", "b,a"].map(|order| {
                format!(
                    "INSERT INTO jobs SELECT 'k', (string_to_array('{order}', ','))[1 + n % 2] FROM generate_series(0, 2000) AS n"
                )
            });
            let both = async { tokio::join!(sessions[0].client.execute(&first, &[]), sessions[1].client.execute(&second, &[])) };
            let (one, other) = within("two statements", both).await;
            assert_eq!((one.unwrap(), other.unwrap()), (2001, 2001), "round {round}");
        }
    }
}

/// Rows of one partition are looked at by a trigger, those of another are not.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_looked_at_and_others_skip_right() {
    let client = Db::embedded().await.connect().await;
    let tables = "
        CREATE TABLE mixed (kind text, queue text, uniqueness jsonb) PARTITION BY LIST (queue);
        CREATE FOREIGN TABLE mixed_a PARTITION OF mixed FOR VALUES IN ('a') SERVER awa_ingest OPTIONS (on_conflict 'skip');
        CREATE FOREIGN TABLE mixed_b PARTITION OF mixed FOR VALUES IN ('b') SERVER awa_ingest OPTIONS (on_conflict 'skip');
        CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER looks AFTER INSERT ON mixed_a FOR EACH ROW EXECUTE FUNCTION nothing()";
    client.batch_execute(tables).await.unwrap();
    let rows_in = "('one', 'b', 'true'), ('one', 'b', 'true'), ('two', 'a', 'true'), ('two', 'a', 'true'), ('three', 'b', NULL)";
    client.batch_execute(&format!("INSERT INTO mixed VALUES {rows_in}")).await.unwrap();
    let stored = "(SELECT kind, queue FROM awa_ingest.ready_entries ORDER BY job_id)";
    let expected = [("one", "b"), ("three", "b"), ("two", "a")].map(|(kind, queue)| json!({"kind": kind, "queue": queue}));
    assert_eq!(rows(&client, stored, &[]).await, expected);
    let claims = "(SELECT count(*) FROM awa_ingest.job_unique_claims JOIN awa_ingest.ready_entries USING (job_id))";
    assert_eq!(rows(&client, claims, &[]).await, [json!({"count": 2})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_of_with_are_counted_together_unless_their_policies_differ() {
    let client = Db::embedded().await.connect().await;
    client.batch_execute(PARTITIONS).await.unwrap();
    let same =
        "WITH a AS (INSERT INTO jobs_a VALUES ('k', 'a')) INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'x'), ('k', 'y')";
    client.execute(same, &[]).await.unwrap();
    assert_eq!(summary(&client).await, [json!({"rows": 3, "enqueued": 3, "skipped": 0, "lanes": 3})]);
    let both = "WITH a AS (INSERT INTO awa.ingest_skip_conflicts (kind, uniqueness) VALUES ('u', 'true'), ('u', 'true'))
                INSERT INTO awa.ingest (kind) VALUES ('k')";
    client.execute(both, &[]).await.unwrap();
    let kinds = "(SELECT kind, count(*) FROM awa_ingest.ready_entries GROUP BY kind)";
    let stored = rows(&client, kinds, &[]).await;
    assert_eq!(stored, [json!({"count": 4, "kind": "k"}), json!({"count": 1, "kind": "u"})]);
}

/// A notification would keep it from being prepared.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_is_forgotten() {
    let cluster = Cluster::start(&[("max_prepared_transactions", "2")]);
    let db = Db::on(cluster, Template::Embedded).await;
    let client = db.connect().await;
    client.batch_execute("BEGIN; INSERT INTO awa.ingest (kind, run_at) VALUES ('k', '2100-01-01')").await.unwrap();
    assert_eq!(summary(&client).await.len(), 1);
    client.batch_execute("PREPARE TRANSACTION 'p'").await.unwrap();
    assert_eq!(summary(&client).await, Vec::<Value>::new());
    client.batch_execute("COMMIT PREPARED 'p'").await.unwrap();
    assert_eq!(rows(&client, "awa_ingest.deferred_jobs", &[]).await.len(), 1);
}

/// A row that moves into a partition is deleted in another: its job is not left out.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_does_not_lose_a_row() {
    let client = Db::embedded().await.connect().await;
    let tables = "
        CREATE TABLE work (kind text, uniqueness jsonb, done boolean) PARTITION BY LIST (done);
        CREATE TABLE drafts PARTITION OF work FOR VALUES IN (false);
        CREATE FOREIGN TABLE sent PARTITION OF work (kind, uniqueness, done) FOR VALUES IN (true)
            SERVER awa_ingest OPTIONS (on_conflict 'skip')";
    let unknown = failure(client.batch_execute(&format!("{tables}; INSERT INTO work VALUES ('k', 'true', true)")).await);
    assert_eq!(unknown.sqlstate, "42703");
    let by_queue = tables.replace("done boolean", "queue text").replace("(done)", "(queue)").replace(", done)", ", queue)");
    let by_queue = by_queue.replace("(false)", "('draft')").replace("(true)", "('sent')");
    client.batch_execute(&format!("DROP TABLE IF EXISTS work; {by_queue}")).await.unwrap();
    client.batch_execute("INSERT INTO work VALUES ('k', 'true', 'draft'), ('k', 'true', 'sent')").await.unwrap();
    let refused = failure(client.execute("UPDATE work SET queue = 'sent' WHERE queue = 'draft'", &[]).await);
    assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"), "{refused:?}");
    assert_eq!(rows(&client, "drafts", &[]).await.len(), 1);
    client
        .batch_execute("UPDATE drafts SET kind = 'other'; UPDATE work SET queue = 'sent' WHERE kind = 'other' AND queue = 'draft'")
        .await
        .unwrap();
    assert_eq!(rows(&client, "(SELECT kind FROM awa_ingest.ready_entries)", &[]).await.len(), 2);
}

/// As in a worker that applies another server's changes.
#[tokio::test(flavor = "multi_thread")]
async fn new_lanes_are_whole_for_replicas_too() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute("SET session_replication_role = replica; INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'new')")
            .await
            .unwrap();
        let lane = format!("(SELECT lane_seq FROM {})", storage.table("ready_entries"));
        assert_eq!(rows(&client, &lane, &[]).await.len(), 1, "{storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_partition_is_left_alone() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let (parent, partition) = (storage.table("ready_entries"), storage.table("ready_entries_0"));
        client.batch_execute(&format!("ALTER TABLE {parent} DETACH PARTITION {partition}")).await.unwrap();
        let refused = failure(client.execute("INSERT INTO awa.ingest (kind) VALUES ('k')", &[]).await);
        assert_eq!(refused.sqlstate, "23514", "the parent has no place for it: {refused:?}");
        assert!(rows(&client, &partition, &[]).await.is_empty(), "{storage:?}");
    }
}

/// A row without its segment is never worked.
#[tokio::test(flavor = "multi_thread")]
async fn segments_that_are_left_out_end_the_statement() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let trigger = format!(
            "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE TRIGGER nothing BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION nothing()",
            storage.table("ready_segments")
        );
        client.batch_execute(&trigger).await.unwrap();
        let refused = failure(client.execute("INSERT INTO awa.ingest (kind) VALUES ('k')", &[]).await);
        assert_eq!(refused.sqlstate, "55000", "{storage:?}: {refused:?}");
    }
}

/// COPY does not check a file that is declared to be SQL_ASCII.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_refused_wherever_they_are() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let good = b"k\tq\t{}\n".to_vec();
        for bad in [
            &b"\xff\tq\t{}\n"[..],
            b"k\t\xff\t{}\n",
            b"k\tq\t\"\xff\"\n",
            b"k\tq\t{\"a\": [[\"\xff\"]]}\n",
            b"k\tq\t{\"\xc3\": 1}\n",
        ] {
            let statement = "COPY awa.ingest (kind, queue, args) FROM STDIN (ENCODING 'SQL_ASCII')";
            let refused = failure(copy_in(&client, statement, [&good[..], bad].concat()).await);
            assert_eq!((refused.sqlstate.as_str(), refused.ordinal()), ("22021", Some(2)), "{storage:?}: {refused:?}");
        }
    }
}
