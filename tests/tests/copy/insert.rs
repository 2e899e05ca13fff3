//! INSERT into the foreign tables: what it returns, and where it can stand in SQL.

use awa_ingest_tests::copy::{copy_csv, last_ingest, last_summary};
use awa_ingest_tests::{Storage, assert_nothing_stored, failure, rows, stored_kinds};
use serde_json::{Value, json};
use tokio_postgres::{Client, Row};

/// Ids in the storage by the number that is their args.
async fn stored(client: &Client, storage: Storage) -> Vec<(i64, i64)> {
    let sql = format!(
        "SELECT args::text::bigint, job_id FROM {} UNION ALL SELECT args::text::bigint, job_id FROM {} ORDER BY 1, 2",
        storage.table("ready_entries"),
        storage.table("deferred_jobs")
    );
    client.query(&sql, &[]).await.expect(&sql).iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn query(client: &Client, sql: &str) -> Vec<Row> {
    client.query(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

async fn ids(client: &Client, sql: &str) -> Vec<i64> {
    query(client, sql).await.iter().map(|row| row.get("job_id")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn values_and_select() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let values = r#"INSERT INTO awa.ingest (kind, args, queue) VALUES ('a', '1', 'q'), ('b', '2', DEFAULT), ('c', '3', NULL)"#;
        assert_eq!(client.execute(values, &[]).await.expect(values), 3);
        let select = "INSERT INTO awa.ingest (kind, args) SELECT 'd', to_jsonb(n) FROM generate_series(4, 1000) AS n";
        assert_eq!(client.execute(select, &[]).await.expect(select), 997);
        let all = "INSERT INTO awa.ingest VALUES ('e', 'q', '1001', 'available', 1, 2, 'yesterday', '{\"m\": 1}', '{t}', '\\x01', '11111111', '\\x02')";
        assert_eq!(client.execute(all, &[]).await.expect(all), 1);
        let numbers: Vec<i64> = stored(&client, storage).await.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=1001).collect::<Vec<_>>(), "{storage:?}");
        let full = format!(
            "(SELECT queue, priority, max_attempts, run_at = 'yesterday' AS due, payload, unique_states FROM {} WHERE kind = 'e')",
            storage.table("ready_entries")
        );
        let expected = json!({"queue": "q", "priority": 1, "max_attempts": 2, "due": true,
                              "payload": {"metadata": {"m": 1}, "tags": ["t"]}, "unique_states": "11111111"});
        assert_eq!(rows(&client, &full, &[]).await, [expected]);
    }
}

/// Lanes in turn, deferred jobs and keys between, so that input order is nobody's order but the input's.
const MIXED: &str = "INSERT INTO {table} (kind, args, queue, priority, run_at, unique_key, unique_states)
    SELECT 'k', to_jsonb(n), 'q' || n * 7 % 5, 1 + n * 3 % 4, CASE WHEN n % 3 = 0 THEN '2030-01-01'::timestamptz END,
        CASE WHEN n % 2 = 0 THEN decode(md5(n::text), 'hex') END, CASE WHEN n % 2 = 0 THEN '11000000' END
    FROM generate_series(1, 1000) AS n RETURNING job_id, args::text::bigint AS number";

#[tokio::test(flavor = "multi_thread")]
async fn returned_ids_are_those_stored_in_input_order() {
    for storage in Storage::BOTH {
        for table in ["awa.ingest", "awa.ingest_skip_conflicts"] {
            let client = storage.db().await.connect().await;
            let returned = query(&client, &MIXED.replace("{table}", table)).await;
            let pairs: Vec<(i64, i64)> = returned.iter().map(|row| (row.get("number"), row.get("job_id"))).collect();
            assert!(pairs.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "input order, ascending ids, {table}");
            assert_eq!(stored(&client, storage).await, pairs, "{table}, {storage:?}");
            let last: Vec<(i64, i64)> =
                last_ingest(&client).await.iter().map(|row| (row.ord, row.job_id.expect("an id"))).collect();
            assert_eq!(last, pairs, "{table}, {storage:?}");
        }
    }
}

/// RETURNING shows a job as it is stored, with the defaults.
#[tokio::test(flavor = "multi_thread")]
async fn every_column_can_be_returned() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let insert = r#"WITH new AS (INSERT INTO awa.ingest (kind, args, tags, ordering_key) VALUES ('k', '{"a": 1}', '{x}', '\x01') RETURNING *)
            SELECT to_jsonb(new) - '{job_id,run_at}'::text[] FROM new"#;
        let returned = query(&client, insert).await;
        let expected = json!({"kind": "k", "queue": "default", "args": {"a": 1}, "state": "available", "priority": 2, "max_attempts": 25,
            "metadata": {}, "tags": ["x"], "unique_key": null, "unique_states": null, "ordering_key": "\\x01", "uniqueness": null});
        assert_eq!(returned[0].get::<_, Value>(0), expected, "{storage:?}");
        let whole =
            "INSERT INTO awa.ingest (kind, run_at) VALUES ('later', '2030-01-01') RETURNING state, run_at = '2030-01-01' AS due,
            job_id > 0 AS known, kind || '!' AS expression, tableoid::regclass::text AS origin";
        let row = &query(&client, whole).await[0];
        assert_eq!(row.get::<_, &str>("state"), "scheduled");
        assert!(row.get::<_, bool>("due") && row.get::<_, bool>("known"));
        assert_eq!((row.get::<_, &str>("expression"), row.get::<_, &str>("origin")), ("later!", "awa.ingest"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_follow_the_table() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE FOREIGN TABLE orders (args jsonb, job_id bigint) SERVER awa_ingest OPTIONS (kind 'first', priority '4')",
            )
            .await
            .unwrap();
        let insert = client.prepare("INSERT INTO orders (args) VALUES ($1) RETURNING job_id").await.unwrap();
        let select =
            client.prepare("INSERT INTO orders (args) SELECT to_jsonb(n) FROM generate_series(1, $1::int) AS n").await.unwrap();
        let changes = [
            "SET plan_cache_mode = force_generic_plan",
            "ALTER FOREIGN TABLE orders OPTIONS (SET kind 'second')",
            "ALTER FOREIGN TABLE orders OPTIONS (DROP priority)",
            "ALTER FOREIGN TABLE orders OPTIONS (ADD on_conflict 'skip', ADD uniqueness '{\"by_args\": true, \"by_queue\": true}')",
            "ALTER FOREIGN TABLE orders ADD COLUMN queue text DEFAULT 'added'",
            "DISCARD PLANS",
        ];
        let mut returned = Vec::new();
        for (round, change) in changes.into_iter().enumerate() {
            for n in 0..10 {
                let args = json!((100 * round + n) as i64);
                returned.push(client.query_one(&insert, &[&args]).await.expect(change).get::<_, i64>(0));
            }
            client.execute(&select, &[&2]).await.expect(change);
            client.batch_execute(change).await.expect(change);
        }
        assert!(returned.is_sorted_by(|a, b| a < b));
        let jobs = format!(
            "(SELECT kind, priority, queue, unique_key IS NOT NULL AS keyed, count(*) FROM {} GROUP BY 1, 2, 3, 4)",
            storage.table("ready_entries")
        );
        let group = |kind: &str, priority: i32, queue: &str, keyed: bool, count: i32| json!({"kind": kind, "priority": priority, "queue": queue, "keyed": keyed, "count": count});
        let expected = [
            group("first", 4, "default", false, 24),
            group("second", 4, "default", false, 12),
            group("second", 2, "default", false, 12),
            group("second", 2, "default", true, 12),
            group("second", 2, "added", true, 12),
        ];
        awa_ingest_tests::assert_same_rows(&format!("{storage:?}"), &expected, &rows(&client, &jobs, &[]).await);
    }
}

/// Functions that catch what is refused, call by call and row by row.
const FUNCTIONS: &str = r#"
    CREATE FUNCTION enqueue_caught(n int) RETURNS text LANGUAGE plpgsql AS $$ DECLARE id bigint; BEGIN
        INSERT INTO awa.ingest (kind, args, uniqueness) VALUES ('k', to_jsonb(n), 'true') RETURNING job_id INTO STRICT id;
        RETURN 'new'; EXCEPTION WHEN unique_violation THEN RETURN 'taken'; END $$;
    CREATE FUNCTION enqueue_two(n int, bad boolean) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO awa.ingest (kind, args) VALUES ('kept', to_jsonb(n));
        BEGIN
            INSERT INTO awa.ingest (kind, args) VALUES ('inner', to_jsonb(n));
            INSERT INTO awa.ingest (kind, args, priority) SELECT 'inner', to_jsonb(n), 1 FROM generate_series(1, 10);
            INSERT INTO awa.ingest (kind, args, priority) VALUES ('inner', to_jsonb(n), 1), ('inner', to_jsonb(n), CASE WHEN bad THEN 9 ELSE 1 END);
        EXCEPTION WHEN check_violation THEN RETURN SQLERRM; END;
        RETURN 'good'; END $$;
    CREATE FUNCTION follow_up() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE one record; total bigint := 0; BEGIN
        FOR one IN INSERT INTO awa.ingest (kind, args) SELECT 'first', to_jsonb(n) FROM generate_series(1, 5) AS n RETURNING job_id, args LOOP
            INSERT INTO awa.ingest (kind, args) VALUES ('second', to_jsonb(one.job_id));
            total := total + 1;
        END LOOP;
        RETURN total; END $$"#;

#[tokio::test(flavor = "multi_thread")]
async fn functions_with_exception_blocks() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(FUNCTIONS).await.unwrap();
        let caught = query(&client, "SELECT enqueue_caught(n) FROM unnest('{1,2,1,3,2,4}'::int[]) AS n").await;
        let caught: Vec<&str> = caught.iter().map(|row| row.get(0)).collect();
        assert_eq!(caught, ["new", "new", "taken", "new", "taken", "new"], "{storage:?}");
        assert_eq!(stored_kinds(&client, storage).await, ["k"; 4]);

        let two = query(&client, "SELECT enqueue_two(1, true), enqueue_two(2, false)").await;
        assert!(two[0].get::<_, &str>(0).starts_with("job 2: "), "{}", two[0].get::<_, &str>(0));
        assert_eq!(two[0].get::<_, &str>(1), "good");
        let kinds = stored_kinds(&client, storage).await;
        let count = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
        assert_eq!((count("kept"), count("inner")), (2, 13), "{storage:?}");

        assert_eq!(query(&client, "SELECT follow_up()").await[0].get::<_, i64>(0), 5);
        let kinds = stored_kinds(&client, storage).await;
        assert_eq!(kinds[kinds.len() - 10..], [["first"; 5], ["second"; 5]].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_inserts_in_one_statement() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let two = r#"WITH a AS (INSERT INTO awa.ingest (kind, args, queue) SELECT 'a', to_jsonb(n), 'one' FROM generate_series(1, 10) AS n RETURNING job_id),
            b AS (INSERT INTO awa.ingest_skip_conflicts (kind, args, queue, uniqueness) SELECT 'b', to_jsonb(n % 4), 'two', 'true' FROM generate_series(1, 10) AS n RETURNING job_id),
            c AS (INSERT INTO awa.ingest (kind, args) VALUES ('c', '1')),
            d AS (INSERT INTO awa.ingest_skip_conflicts (kind, args, uniqueness) VALUES ('d', '1', 'true'), ('d', '1', 'true'))
            SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b"#;
        let row = &query(&client, two).await[0];
        assert_eq!((row.get::<_, i64>("a"), row.get::<_, i64>("b")), (10, 4), "{storage:?}");
        let mut kinds = stored_kinds(&client, storage).await;
        kinds.sort_unstable();
        assert_eq!(kinds, [vec!["a"; 10], vec!["b"; 4], vec!["c"], vec!["d"]].concat(), "{storage:?}");

        // An id that one part gives is a value for the next.
        let chained = "WITH a AS (INSERT INTO awa.ingest (kind) VALUES ('parent') RETURNING job_id)
            INSERT INTO awa.ingest (kind, args) SELECT 'child', to_jsonb(job_id) FROM a RETURNING args::text::bigint AS parent, job_id";
        let row = &query(&client, chained).await[0];
        assert!(row.get::<_, i64>("parent") < row.get::<_, i64>("job_id"));

        // One part that is refused takes all with it.
        let before = stored_kinds(&client, storage).await.len();
        let refused =
            "WITH a AS (INSERT INTO awa.ingest (kind) VALUES ('lost')) INSERT INTO awa.ingest (kind, priority) VALUES ('bad', 7)";
        assert_eq!(failure(client.batch_execute(refused).await).constraint, "priority_in_range");
        assert_eq!(stored_kinds(&client, storage).await.len(), before);
    }
}

/// Keys that two parts of a statement want: the first takes it, whichever that is, and only once.
#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_statement_meet_on_a_key() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let insert = |table: &str, returning: &str| {
            format!("INSERT INTO {table} (kind, args, uniqueness) VALUES ('k', '1', 'true'), ('k', '2', 'true') {returning}")
        };
        let skipping = format!(
            "WITH a AS ({}), b AS ({}) SELECT job_id FROM a UNION ALL SELECT job_id FROM b",
            insert("awa.ingest_skip_conflicts", "RETURNING job_id"),
            insert("awa.ingest_skip_conflicts", "RETURNING job_id")
        );
        assert_eq!(query(&client, &skipping).await.len(), 2, "{storage:?}");
        assert_eq!(stored_kinds(&client, storage).await.len(), 2);

        client.batch_execute(&format!("DELETE FROM {}", storage.table("job_unique_claims"))).await.unwrap();
        let erring = format!("WITH a AS ({}) {}", insert("awa.ingest", ""), insert("awa.ingest", ""));
        let refused = failure(client.batch_execute(&erring).await);
        assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"), "{refused:?}");
        assert_eq!(stored_kinds(&client, storage).await.len(), 2, "{storage:?}");
        assert!(rows(&client, &storage.table("job_unique_claims"), &[]).await.is_empty());
    }
}

/// What is returned is what the column's type can hold, also where the table has filled it in.
#[tokio::test(flavor = "multi_thread")]
async fn returned_values_are_of_the_declared_type() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE DOMAIN short AS varchar(5); CREATE DOMAIN odd_number AS smallint CHECK (VALUE % 2 = 1);
                 CREATE DOMAIN not_25 AS odd_number CHECK (VALUE <> 25);
                 CREATE FOREIGN TABLE named (kind text, queue varchar(5)) SERVER awa_ingest;
                 CREATE FOREIGN TABLE shortened (kind text, queue short) SERVER awa_ingest;
                 CREATE FOREIGN TABLE odd (kind text, priority odd_number) SERVER awa_ingest;
                 CREATE FOREIGN TABLE nested (kind text, max_attempts not_25) SERVER awa_ingest;
                 CREATE FOREIGN TABLE fits (kind varchar(3), queue short, priority odd_number, run_at timestamptz(0), job_id bigint)
                     SERVER awa_ingest OPTIONS (queue 'q', priority '3')",
            )
            .await
            .unwrap();
        for (table, column, sqlstate) in [
            ("named", "queue", "22001"),
            ("shortened", "queue", "22001"),
            ("odd", "priority", "23514"),
            ("nested", "max_attempts", "23514"),
        ] {
            let insert = format!("INSERT INTO {table} (kind) VALUES ('k')");
            let refused = failure(client.query(&format!("{insert} RETURNING {column}"), &[]).await);
            assert_eq!(refused.sqlstate, sqlstate, "{table}: {refused:?}");
            // The job is as good as any.
            client.batch_execute(&insert).await.expect(&insert);
        }
        let insert = "INSERT INTO fits (kind, run_at) VALUES ('k', '2041-01-01 00:00:00.7') RETURNING kind, queue, priority, run_at = '2041-01-01 00:00:01' AS rounded";
        let row = client.query_one(insert, &[]).await.expect(insert);
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, bool>(3)), ("k", "q", true), "{storage:?}");
        assert_eq!(stored_kinds(&client, storage).await.len(), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_are_open_elsewhere() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("INSERT INTO awa.ingest (kind) SELECT 'before' FROM generate_series(1, 5)").await.unwrap();
        let declare = format!(
            "BEGIN; DECLARE jobs CURSOR FOR SELECT kind FROM {} ORDER BY job_id; DECLARE numbers CURSOR WITH HOLD FOR SELECT generate_series(1, 9)",
            storage.table("ready_entries")
        );
        client.batch_execute(&declare).await.unwrap();
        assert_eq!(query(&client, "FETCH 2 FROM jobs").await.len(), 2);
        assert_eq!(query(&client, "FETCH 3 FROM numbers").await.len(), 3);
        assert_eq!(ids(&client, "INSERT INTO awa.ingest (kind) VALUES ('a'), ('b') RETURNING job_id").await.len(), 2);
        assert_eq!(query(&client, "FETCH 1 FROM numbers").await.len(), 1);
        assert_eq!(copy_csv(&client, "awa.ingest", "kind", "c\nd\n").await.expect("COPY"), 2);
        assert_eq!(query(&client, "FETCH ALL FROM jobs").await.len(), 3, "as it was when it was declared");
        client
            .batch_execute("SAVEPOINT s; INSERT INTO awa.ingest (kind) VALUES ('lost'); ROLLBACK TO s; CLOSE jobs; COMMIT")
            .await
            .unwrap();
        assert_eq!(query(&client, "FETCH ALL FROM numbers").await.len(), 5);
        assert_eq!(stored_kinds(&client, storage).await[5..], ["a", "b", "c", "d"], "{storage:?}");
    }
}

/// Rows of RETURNING that a client asks for piece by piece.
#[tokio::test(flavor = "multi_thread")]
async fn returned_rows_come_in_portions() {
    for storage in Storage::BOTH {
        let mut client = storage.db().await.connect().await;
        let transaction = client.transaction().await.unwrap();
        let insert =
            "INSERT INTO awa.ingest (kind, args) SELECT 'k', to_jsonb(n) FROM generate_series(1, $1::int) AS n RETURNING job_id";
        let portal = transaction.bind(insert, &[&10]).await.unwrap();
        let mut returned = Vec::new();
        while returned.len() < 10 {
            let portion = transaction.query_portal(&portal, 3).await.unwrap();
            returned.extend(portion.iter().map(|row| row.get::<_, i64>(0)));
            transaction.batch_execute("INSERT INTO awa.ingest (kind, args) VALUES ('between', '0')").await.unwrap();
        }
        transaction.commit().await.unwrap();
        let numbered: Vec<i64> = stored(&client, storage).await.into_iter().filter(|(n, _)| *n > 0).map(|(_, id)| id).collect();
        assert_eq!(numbered, returned, "{storage:?}");
        assert_eq!(stored_kinds(&client, storage).await.len(), 14);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_writes_and_explain_analyze_does() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let plan = query(&client, "EXPLAIN (VERBOSE, COSTS off) INSERT INTO awa.ingest (kind) VALUES ('k') RETURNING job_id").await;
        assert!(plan[0].get::<_, &str>(0).starts_with("Insert on awa.ingest"), "{}", plan[0].get::<_, &str>(0));
        assert_nothing_stored(&client, storage, "EXPLAIN").await;
        assert_eq!(last_summary(&client).await, None, "EXPLAIN is no INSERT");

        query(&client, "EXPLAIN ANALYZE INSERT INTO awa.ingest (kind) SELECT 'k' FROM generate_series(1, 3)").await;
        query(
            &client,
            "EXPLAIN ANALYZE INSERT INTO awa.ingest_skip_conflicts (kind) SELECT 'k' FROM generate_series(1, 3) RETURNING job_id",
        )
        .await;
        assert_eq!(stored_kinds(&client, storage).await, ["k"; 6], "{storage:?}");
        client.batch_execute("BEGIN; EXPLAIN ANALYZE INSERT INTO awa.ingest (kind) VALUES ('lost'); ROLLBACK").await.unwrap();
        assert_eq!(stored_kinds(&client, storage).await.len(), 6);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_conflict_do_nothing_skips() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let insert = |rest: &str| {
            format!(
                "INSERT INTO awa.ingest (kind, args, uniqueness) SELECT 'k', to_jsonb(n), 'true' FROM unnest('{{1,2,1,3}}'::int[]) AS n {rest}"
            )
        };
        assert_eq!(ids(&client, &insert("ON CONFLICT DO NOTHING RETURNING job_id")).await.len(), 3);
        assert_eq!(ids(&client, &insert("ON CONFLICT DO NOTHING RETURNING job_id")).await.len(), 0);
        client.batch_execute(&insert("ON CONFLICT DO NOTHING")).await.expect("without RETURNING");
        let summary = last_summary(&client).await.expect("an INSERT");
        assert_eq!((summary.rows, summary.enqueued, summary.skipped), (4, 0, 4), "{storage:?}");
        let holders: Vec<Option<i64>> = last_ingest(&client).await.iter().map(|row| row.conflicts_with).collect();
        let by_args = stored(&client, storage).await;
        let holder = |args: i64| by_args.iter().find(|(number, _)| *number == args).map(|(_, id)| *id);
        assert_eq!(holders, [holder(1), holder(2), holder(1), holder(3)]);

        for refused in ["ON CONFLICT (unique_key) DO NOTHING", "ON CONFLICT (unique_key) DO UPDATE SET kind = 'x'"] {
            // The server looks for a unique index on the foreign table, which has none.
            assert_eq!(failure(client.batch_execute(&insert(refused)).await).sqlstate, "42P10", "{refused}");
        }
        assert_eq!(stored_kinds(&client, storage).await.len(), 3);
    }
}
