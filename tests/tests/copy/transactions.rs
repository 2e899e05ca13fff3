//! COPY and INSERT in transactions: savepoints, isolation levels, read-only, empty input, COPY's WHERE.

use awa_ingest_tests::copy::{Format, Row, Summary, copy_csv, copy_in, copy_rows, last_ingest, last_summary};
use awa_ingest_tests::{Storage, assert_nothing_stored, failure, rows, stored_kinds};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// Segments and rows name the same positions, each once, and each lane's positions have the order of ids.
async fn assert_lanes_are_whole(client: &Client, storage: Storage) {
    let both = format!(
        "(SELECT queue, priority, enqueue_shard, lane_seq FROM {entries}
          UNION ALL SELECT queue, priority, enqueue_shard, generate_series(first_lane_seq, next_lane_seq - 1) FROM {segments})",
        entries = storage.table("ready_entries"),
        segments = storage.table("ready_segments"),
    );
    let odd = format!("(SELECT * FROM {both} AS p GROUP BY queue, priority, enqueue_shard, lane_seq HAVING count(*) <> 2)");
    assert_eq!(rows(client, &odd, &[]).await, Vec::<Value>::new(), "{storage:?}");
    let unordered = format!(
        "(SELECT FROM (SELECT job_id < lag(job_id) OVER (PARTITION BY queue, priority, enqueue_shard ORDER BY lane_seq) AS back FROM {}) AS e
          WHERE back)",
        storage.table("ready_entries")
    );
    assert_eq!(rows(client, &unordered, &[]).await.len(), 0, "{storage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_statements_and_savepoints() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("BEGIN").await.unwrap();
        copy_csv(&client, "awa.ingest", "kind", "a\nb\n").await.expect("COPY");
        client.batch_execute("SAVEPOINT one; INSERT INTO awa.ingest (kind) VALUES ('lost')").await.unwrap();
        client.batch_execute("SAVEPOINT two").await.unwrap();
        copy_csv(&client, "awa.ingest_skip_conflicts", "kind, uniqueness", "lost,true\nlost,true\n").await.expect("COPY");
        client.batch_execute("ROLLBACK TO one").await.unwrap();
        client
            .batch_execute("INSERT INTO awa.ingest_skip_conflicts (kind, uniqueness) VALUES ('lost', 'true'), ('lost', 'true')")
            .await
            .unwrap();
        client.batch_execute("RELEASE one; SAVEPOINT three").await.unwrap();
        let refused = failure(copy_csv(&client, "awa.ingest", "kind, priority", "lost,1\nlost,5\n").await);
        assert_eq!(refused.constraint, "priority_in_range");
        client.batch_execute("ROLLBACK TO three").await.unwrap();
        copy_csv(&client, "awa.ingest", "kind, run_at", "later,2030-01-01\nnow,__AWA_NULL__\n").await.expect("COPY");
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(stored_kinds(&client, storage).await, ["a", "b", "lost", "later", "now"], "{storage:?}");
        assert_eq!(rows(&client, &storage.table("job_unique_claims"), &[]).await.len(), 1);
        assert_lanes_are_whole(&client, storage).await;
    }
}

/// One statement of either kind, with new jobs and maybe a key; returns the kinds that it enqueues.
async fn enqueue_some(client: &Client, rng: &mut StdRng, number: &mut usize) -> Vec<String> {
    let count = rng.random_range(1..6);
    let kinds: Vec<String> = (0..count).map(|n| format!("{}", *number + n)).collect();
    *number += count;
    let queue = ["a", "b", "c"][rng.random_range(0..3)];
    if rng.random() {
        let row = |kind: &String| Row { queue: Some(queue.to_owned()), uniqueness: Some(json!(true)), ..Row::new(kind, json!({})) };
        // Every job twice: the second is skipped.
        let batch: Vec<Row> = kinds.iter().chain(&kinds).map(row).collect();
        let format = Format::ALL[rng.random_range(0..3)];
        copy_rows(client, "awa.ingest_skip_conflicts", format, &batch).await.expect("COPY");
    } else {
        let insert = "INSERT INTO awa.ingest (kind, queue) SELECT kind, $2 FROM unnest($1::text[]) AS kind RETURNING job_id";
        assert_eq!(client.query(insert, &[&kinds, &queue]).await.expect(insert).len(), count);
    }
    kinds
}

/// Random statements and savepoints, opened, released and rolled back to: what is left is what ordinary inserts would leave.
#[tokio::test(flavor = "multi_thread")]
async fn random_savepoints() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let (mut rng, mut number, mut expected) = (StdRng::seed_from_u64(33), 0, Vec::new());
        for _ in 0..10 {
            client.batch_execute("BEGIN").await.unwrap();
            let (mut current, mut savepoints) = (expected.clone(), Vec::<Vec<String>>::new());
            for _ in 0..25 {
                let depth = savepoints.len();
                match rng.random_range(0..10) {
                    0..=4 => current.extend(enqueue_some(&client, &mut rng, &mut number).await),
                    5..=6 => {
                        client.batch_execute(&format!("SAVEPOINT s{depth}")).await.unwrap();
                        savepoints.push(current.clone());
                    }
                    7 if depth > 0 => {
                        client.batch_execute(&format!("RELEASE s{}", depth - 1)).await.unwrap();
                        savepoints.pop();
                    }
                    8.. if depth > 0 => {
                        let to = rng.random_range(0..depth);
                        client.batch_execute(&format!("ROLLBACK TO s{to}")).await.unwrap();
                        savepoints.truncate(to + 1);
                        current = savepoints[to].clone();
                    }
                    _ => {}
                }
            }
            let commit = rng.random_bool(0.8);
            client.batch_execute(if commit { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
            if commit {
                expected = current;
            }
            assert_eq!(stored_kinds(&client, storage).await, expected, "{storage:?}");
            assert_lanes_are_whole(&client, storage).await;
        }
        assert!(expected.len() > 50, "{} jobs", expected.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_transactions_refuse() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let inserts = [
            "INSERT INTO awa.ingest (kind) VALUES ('k')",
            "INSERT INTO awa.ingest_skip_conflicts (kind, uniqueness) VALUES ('k', 'true') RETURNING job_id",
        ];
        for mode in ["BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY"] {
            for insert in inserts {
                client.batch_execute(mode).await.unwrap();
                assert_eq!(failure(client.batch_execute(insert).await).sqlstate, "25006", "{insert}");
                client.batch_execute("ROLLBACK").await.unwrap();
            }
            let copying = db.connect().await;
            copying.batch_execute(mode).await.unwrap();
            assert_eq!(failure(copy_csv(&copying, "awa.ingest", "kind", "k\n").await).sqlstate, "25006");
        }
        assert_nothing_stored(&client, storage, "read-only").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stricter_isolation_levels() {
    for storage in Storage::BOTH {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let db = storage.db().await;
            let (client, other) = (db.connect().await, db.connect().await);
            client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM pg_class LIMIT 1")).await.unwrap();
            // Lanes and positions that the old snapshot does not know.
            copy_csv(&other, "awa.ingest", "kind", "first\n").await.expect("COPY");
            copy_csv(&client, "awa.ingest", "kind", "second\nthird\n").await.expect(level);
            client.batch_execute("INSERT INTO awa.ingest (kind) VALUES ('fourth') RETURNING job_id; COMMIT").await.expect(level);
            assert_eq!(stored_kinds(&other, storage).await, ["first", "second", "third", "fourth"]);
            assert_lanes_are_whole(&other, storage).await;

            // A claim that was committed since the snapshot.
            for (n, statement) in [
                "INSERT INTO awa.ingest (kind, args, uniqueness) VALUES ('k', $1, 'true')",
                "INSERT INTO awa.ingest_skip_conflicts (kind, args, uniqueness) VALUES ('k', $1, 'true')",
                "INSERT INTO awa.ingest_skip_conflicts (kind, args, uniqueness) VALUES ('k', $1, 'true') RETURNING job_id",
            ]
            .into_iter()
            .enumerate()
            {
                let args = json!(n);
                client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM pg_class LIMIT 1")).await.unwrap();
                other.execute(statement, &[&args]).await.unwrap();
                let refused = failure(client.execute(statement, &[&args]).await);
                assert_eq!(refused.sqlstate, "40001", "{level}, {statement}: {refused:?}");
                client.batch_execute("ROLLBACK").await.unwrap();
            }
            assert_eq!(stored_kinds(&other, storage).await.len(), 7);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_do_is_no_error() {
    let empty = Summary { rows: 0, enqueued: 0, skipped: 0, deferred: 0, lanes: 0, job_ids: Some("{}".to_owned()) };
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        assert_eq!((last_summary(&client).await, last_ingest(&client).await), (None, vec![]));
        for table in ["awa.ingest", "awa.ingest_skip_conflicts"] {
            for format in Format::ALL {
                assert_eq!(copy_rows(&client, table, format, &[]).await.expect("no rows"), 0);
                assert_eq!(last_summary(&client).await.as_ref(), Some(&empty), "{table}, {format:?}, {storage:?}");
            }
            let select = format!("INSERT INTO {table} (kind) SELECT 'k' WHERE false RETURNING job_id");
            assert!(client.query(&select, &[]).await.expect(&select).is_empty());
            assert_eq!((last_summary(&client).await.as_ref(), last_ingest(&client).await), (Some(&empty), vec![]));
        }
        let header = "COPY awa.ingest (kind) FROM STDIN WITH (FORMAT csv, HEADER)";
        assert_eq!(copy_in(&client, header, "kind\n").await.expect(header), 0);
        assert_nothing_stored(&client, storage, "no rows").await;
    }
}

/// Rows that COPY leaves out are no jobs: they have no ordinal, and their values are not looked at.
#[tokio::test(flavor = "multi_thread")]
async fn copys_where() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let copy =
            "COPY awa.ingest (kind, args, priority) FROM STDIN WITH (FORMAT csv) WHERE (args->>'n')::int % 2 = 0 OR kind IS NULL";
        let csv = "k,\"{\"\"n\"\": 1}\",9\nk,\"{\"\"n\"\": 2}\",1\nk,\"{\"\"n\"\": 3}\",9\nk,\"{\"\"n\"\": 4}\",2\n";
        assert_eq!(copy_in(&client, copy, csv).await.expect(copy), 2, "{storage:?}");
        assert_eq!(last_ingest(&client).await.iter().map(|row| row.ord).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(stored_kinds(&client, storage).await, ["k", "k"]);

        let refused = failure(copy_in(&client, copy, format!("{csv}k,\"{{\"\"n\"\": 6}}\",9\n")).await);
        assert_eq!((refused.constraint.as_str(), refused.ordinal()), ("priority_in_range", Some(3)), "{refused:?}");
        assert!(refused.context.starts_with("COPY ingest, line 5"), "{refused:?}");
        assert_eq!(stored_kinds(&client, storage).await.len(), 2);
    }
}

/// Options of COPY that are the server's own work.
#[tokio::test(flavor = "multi_thread")]
async fn copys_options() {
    let copies = [
        ("COPY awa.ingest (kind, queue) FROM STDIN", "k\t\\N\nk\tq\n"),
        ("COPY awa.ingest (queue, kind) FROM STDIN WITH (DELIMITER '|', NULL '-')", "-|k\nq|k\n"),
        ("COPY awa.ingest (kind, queue) FROM STDIN WITH (FORMAT csv, HEADER)", "any,thing\nk,\nk,q\n"),
        ("COPY awa.ingest (kind, queue) FROM STDIN WITH (FORMAT csv, QUOTE '''', ESCAPE '!', NULL '')", "'k',\nk,'q'\n"),
        ("COPY awa.ingest (kind, queue) FROM STDIN WITH (FORMAT csv, FORCE_NULL (queue))", "k,\"\"\n\"k\",q\n"),
        ("COPY awa.ingest (kind, queue) FROM STDIN WITH (FORMAT csv, FORCE_NOT_NULL (kind), NULL 'k')", "k,k\nk,q\n"),
        ("COPY awa.ingest (kind, queue) FROM STDIN WITH (FORMAT csv, ENCODING 'latin1')", "k,\nk,q\n"),
    ];
    for storage in Storage::BOTH {
        for (copy, bytes) in copies {
            let client = storage.db().await.connect().await;
            assert_eq!(copy_in(&client, copy, bytes).await.unwrap_or_else(|error| panic!("{copy}: {error:?}")), 2);
            let stored = format!("(SELECT kind, queue FROM {})", storage.table("ready_entries"));
            let expected = [json!({"kind": "k", "queue": "default"}), json!({"kind": "k", "queue": "q"})];
            assert_eq!(rows(&client, &stored, &[]).await, expected, "{copy}, {storage:?}");
        }
    }
}
