//! Foreign tables as partitions, under views, with triggers, defaults and generated columns.

use awa_ingest_tests::copy::{copy_csv, copy_in, last_summary};
use awa_ingest_tests::{Storage, assert_nothing_stored, assert_same_rows, failure, rows, stored_kinds};
use serde_json::{Value, json};
use tokio_postgres::Client;

async fn jobs(client: &Client, storage: Storage, columns: &str) -> Vec<Value> {
    rows(client, &format!("(SELECT {columns} FROM {})", storage.table("ready_entries")), &[]).await
}

/// A partitioned table with two foreign partitions, of which one has its columns elsewhere, and a local one.
const PARTITIONED: &str = "
    CREATE TABLE events (kind text, queue text, args jsonb, uniqueness jsonb) PARTITION BY LIST (queue);
    CREATE FOREIGN TABLE events_a PARTITION OF events FOR VALUES IN ('a') SERVER awa_ingest OPTIONS (priority '1');
    CREATE FOREIGN TABLE events_b (metadata jsonb, args jsonb, uniqueness jsonb, queue text, kind text) SERVER awa_ingest OPTIONS (priority '4');
    ALTER FOREIGN TABLE events_b DROP COLUMN metadata;
    ALTER TABLE events ATTACH PARTITION events_b FOR VALUES IN ('b');
    CREATE TABLE events_local PARTITION OF events DEFAULT";

/// Rows that go to the three partitions in turn.
fn lines(count: usize) -> String {
    (0..count).map(|n| format!("k{n},{},{n},__AWA_NULL__\n", ["a", "b", "c"][n % 3])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_take_their_rows() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(PARTITIONED).await.unwrap();
        assert_eq!(copy_csv(&client, "events", "kind, queue, args, uniqueness", &lines(90)).await.expect("COPY"), 90);
        let insert = "INSERT INTO events (kind, queue, args) SELECT 'k' || n, (ARRAY['a', 'b', 'c'])[1 + n % 3], to_jsonb(n)
            FROM generate_series(90, 119) AS n";
        assert_eq!(client.execute(insert, &[]).await.expect(insert), 30);
        let returning =
            "INSERT INTO events (kind, queue, args) VALUES ('k120', 'a', '120'), ('k121', 'b', '121'), ('k122', 'c', '122')
            RETURNING kind, tableoid::regclass::text AS part";
        let returned = client.query(returning, &[]).await.expect(returning);
        let returned: Vec<(&str, &str)> = returned.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(returned, [("k120", "events_a"), ("k121", "events_b"), ("k122", "events_local")]);

        let expected: Vec<Value> = (0..123)
            .filter(|n| n % 3 < 2)
            .map(|n| {
                let (queue, priority) = [("a", 1), ("b", 4)][n % 3];
                json!({"kind": format!("k{n}"), "queue": queue, "args": n, "priority": priority, "lane_seq": n / 3 + 1})
            })
            .collect();
        assert_same_rows(
            &format!("{storage:?}"),
            &expected,
            &jobs(&client, storage, "kind, queue, args, priority, lane_seq").await,
        );
        assert_eq!(rows(&client, "events_local", &[]).await.len(), 41);
    }
}

/// What one partition refuses leaves nothing in any.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_fail_together() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(PARTITIONED).await.unwrap();
        let twice = lines(9) + "k,b,0,true\nk,a,0,__AWA_NULL__\nk,b,0,true\n";
        let refused = failure(copy_csv(&client, "events", "kind, queue, args, uniqueness", &twice).await);
        assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"), "{refused:?}");
        let invalid = lines(9) + &format!("{},b,0,__AWA_NULL__\n", "k".repeat(201));
        assert_eq!(failure(copy_csv(&client, "events", "kind, queue, args, uniqueness", &invalid).await).constraint, "kind_length");
        assert_nothing_stored(&client, storage, "refused").await;
        assert!(rows(&client, "events_local", &[]).await.is_empty());

        client.batch_execute("ALTER FOREIGN TABLE events_b OPTIONS (ADD on_conflict 'skip')").await.unwrap();
        assert_eq!(copy_csv(&client, "events", "kind, queue, args, uniqueness", &twice).await.expect("one partition skips"), 12);
        assert_eq!(stored_kinds(&client, storage).await.len(), 8, "{storage:?}");
    }
}

/// An UPDATE that moves a row into a foreign partition enqueues it. One that would look for rows there is refused.
#[tokio::test(flavor = "multi_thread")]
async fn updates_move_rows_in_but_not_out() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(PARTITIONED).await.unwrap();
        let local = "INSERT INTO events (kind, queue, args) SELECT 'k' || n, 'c', to_jsonb(n) FROM generate_series(1, 6) AS n";
        client.batch_execute(local).await.unwrap();
        let moving = "UPDATE events SET queue = 'b' WHERE queue = 'c' AND kind < 'k4' RETURNING kind";
        assert_eq!(client.query(moving, &[]).await.expect(moving).len(), 3);
        assert_eq!(stored_kinds(&client, storage).await, ["k1", "k2", "k3"], "{storage:?}");
        for refused in ["UPDATE events SET queue = 'b'", "DELETE FROM events", "SELECT FROM events"] {
            assert_eq!(failure(client.batch_execute(refused).await).sqlstate, "0A000", "{refused}");
        }
        assert_eq!(rows(&client, "events_local", &[]).await.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_over_the_tables() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE VIEW mails AS SELECT args, kind, job_id FROM awa.ingest;
                 CREATE VIEW checked AS SELECT kind, args FROM awa.ingest WHERE kind LIKE 'mail%' WITH CHECK OPTION;
                 CREATE VIEW skipping AS SELECT kind, args, uniqueness FROM awa.ingest_skip_conflicts;
                 ALTER VIEW mails ALTER kind SET DEFAULT 'mail'",
            )
            .await
            .unwrap();
        let insert = "INSERT INTO mails (args) VALUES ('1'), ('2') RETURNING job_id, kind";
        let returned = client.query(insert, &[]).await.expect(insert);
        assert_eq!(returned.iter().map(|row| row.get::<_, &str>("kind")).collect::<Vec<_>>(), ["mail", "mail"]);
        assert!(returned.iter().all(|row| row.get::<_, i64>("job_id") > 0));
        client.batch_execute("INSERT INTO checked VALUES ('mailing', '3')").await.expect("it satisfies the view");
        let refused = failure(client.batch_execute("INSERT INTO checked VALUES ('mailing', '4'), ('other', '5')").await);
        assert_eq!(refused.sqlstate, "44000", "{refused:?}");
        client.batch_execute("INSERT INTO skipping VALUES ('once', '6', 'true'), ('once', '6', 'true')").await.expect("it skips");
        assert_eq!(stored_kinds(&client, storage).await, ["mail", "mail", "mailing", "once"], "{storage:?}");
    }
}

/// The check option of a view is about the job as it is stored, whether or not the statement returns it.
#[tokio::test(flavor = "multi_thread")]
async fn check_options_see_the_stored_job() {
    let views = [
        ("priority = 2", "kind", "'k'", "kind, priority", "'k', 1"),
        ("queue = 'default'", "kind, queue", "'k', NULL", "kind, queue", "'k', 'q'"),
        ("queue IS NOT NULL AND state = 'scheduled'", "kind, run_at", "'k', '2041-01-01'", "kind", "'k'"),
        ("coalesce(priority, 4) = 4", "kind, priority", "'k', 4", "kind", "'k'"),
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for table in ["awa.ingest", "awa.ingest_skip_conflicts"] {
            for (check, columns, good, bad_columns, bad) in views {
                let view = format!("CREATE VIEW v AS SELECT * FROM {table} WHERE {check} WITH CHECK OPTION");
                client.batch_execute(&view).await.expect(&view);
                for returning in ["", "RETURNING job_id"] {
                    let insert = |columns: &str, values: &str| format!("INSERT INTO v ({columns}) VALUES ({values}) {returning}");
                    client.query(&insert(columns, good), &[]).await.unwrap_or_else(|error| panic!("{view}{returning}: {error:?}"));
                    let refused = failure(client.query(&insert(bad_columns, bad), &[]).await);
                    assert_eq!(refused.sqlstate, "44000", "{view}{returning}: {refused:?}");
                }
                client.batch_execute("DROP VIEW v").await.unwrap();
            }
        }
        assert_eq!(stored_kinds(&client, storage).await.len(), 2 * 2 * views.len(), "{storage:?}");
    }
}

/// A column that is generated when it is read is none that is written. Servers before 18 do not know such columns.
#[tokio::test(flavor = "multi_thread")]
async fn virtual_columns_are_refused() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let create =
            "CREATE FOREIGN TABLE orders (kind text, queue text GENERATED ALWAYS AS ('q_' || kind) VIRTUAL) SERVER awa_ingest";
        let refused = match client.batch_execute(create).await {
            Err(error) => Err(error),
            Ok(()) => client.batch_execute("INSERT INTO orders (kind) VALUES ('k')").await,
        };
        let refused = failure(refused);
        assert!(["42601", "0A000"].contains(&refused.sqlstate.as_str()), "{refused:?}");
        assert_nothing_stored(&client, storage, create).await;
    }
}

/// Triggers that change, drop and log rows.
const TRIGGERS: &str = "
    CREATE FOREIGN TABLE orders (kind text, args jsonb, uniqueness jsonb, job_id bigint) SERVER awa_ingest;
    CREATE TABLE log (what text, kind text, job_id bigint);
    CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.kind = 'dropped' THEN RETURN NULL; END IF;
        NEW.kind := upper(NEW.kind);
        NEW.args := coalesce(NEW.args, '{}') || '{\"seen\": true}';
        RETURN NEW; END $$;
    CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO log VALUES (format('%s %s %s', TG_WHEN, TG_OP, TG_LEVEL), CASE TG_LEVEL WHEN 'ROW' THEN NEW.kind END,
            CASE TG_LEVEL WHEN 'ROW' THEN NEW.job_id END);
        RETURN NULL; END $$;
    CREATE TRIGGER change BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION change();
    CREATE TRIGGER log_row AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION log();
    CREATE TRIGGER log_before BEFORE INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION log();
    CREATE TRIGGER log_after AFTER INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION log()";

#[tokio::test(flavor = "multi_thread")]
async fn triggers_on_the_table() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(TRIGGERS).await.unwrap();
        let insert = "INSERT INTO orders (kind) VALUES ('a'), ('dropped'), ('b') RETURNING kind, args, job_id";
        let returned = client.query(insert, &[]).await.expect(insert);
        let returned: Vec<(&str, Value)> = returned.iter().map(|row| (row.get("kind"), row.get("args"))).collect();
        assert_eq!(returned, [("A", json!({"seen": true})), ("B", json!({"seen": true}))], "{storage:?}");
        assert_eq!(copy_csv(&client, "orders", "kind", "c\ndropped\nd\n").await.expect("COPY"), 2);
        assert_eq!(stored_kinds(&client, storage).await, ["A", "B", "C", "D"]);
        assert_eq!(jobs(&client, storage, "args").await, vec![json!({"args": {"seen": true}}); 4]);

        // Rows that were enqueued, with their ids; statements twice.
        let logged = format!(
            "(SELECT what, log.kind, count(*), count(job.job_id) AS jobs FROM log LEFT JOIN {} AS job ON job.job_id = log.job_id
               AND job.kind = log.kind GROUP BY 1, 2)",
            storage.table("ready_entries")
        );
        let row = |kind: &str| json!({"what": "AFTER INSERT ROW", "kind": kind, "count": 1, "jobs": 1});
        let statement = |when: &str| json!({"what": format!("{when} INSERT STATEMENT"), "kind": null, "count": 2, "jobs": 0});
        let expected = [row("A"), row("B"), row("C"), row("D"), statement("BEFORE"), statement("AFTER")];
        assert_same_rows(&format!("{storage:?}"), &expected, &rows(&client, &logged, &[]).await);
    }
}

/// A row that is skipped is none for triggers behind it.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_see_no_skipped_rows() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(&format!("{TRIGGERS}; ALTER FOREIGN TABLE orders OPTIONS (ADD on_conflict 'skip')")).await.unwrap();
        let csv = "a,true\nb,true\na,true\nc,\n";
        for (round, expected) in [3, 4].into_iter().enumerate() {
            let copy = "COPY orders (kind, uniqueness) FROM STDIN WITH (FORMAT csv)";
            copy_in(&client, copy, csv).await.expect(copy);
            let log = rows(&client, "(SELECT FROM log WHERE what = 'AFTER INSERT ROW')", &[]).await;
            assert_eq!(log.len(), expected, "round {round}, {storage:?}");
            assert_eq!(last_summary(&client).await.expect("a COPY").enqueued, if round == 0 { 3 } else { 1 });
        }
        assert_eq!(stored_kinds(&client, storage).await, ["A", "B", "C", "C"]);
    }
}

/// A trigger that refuses, and one that enqueues by itself.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_refuse_and_enqueue() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE FOREIGN TABLE orders (kind text, job_id bigint) SERVER awa_ingest;
                 CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF NEW.kind = 'bad' THEN RAISE 'no' USING ERRCODE = '23514', CONSTRAINT = 'no_bad'; END IF;
                     INSERT INTO awa.ingest (kind, args, queue) VALUES ('follow ' || NEW.kind, to_jsonb(NEW.job_id), 'next');
                     RETURN NULL; END $$;
                 CREATE TRIGGER follow AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION follow()",
            )
            .await
            .unwrap();
        assert_eq!(copy_csv(&client, "orders", "kind", "a\nb\n").await.expect("COPY"), 2);
        let insert = "INSERT INTO orders (kind) VALUES ('c') RETURNING job_id";
        client.query_one(insert, &[]).await.expect(insert);
        assert_eq!(failure(copy_csv(&client, "orders", "kind", "d\nbad\n").await).constraint, "no_bad");
        let mut kinds = stored_kinds(&client, storage).await;
        kinds.sort_unstable();
        assert_eq!(kinds, ["a", "b", "c", "follow a", "follow b", "follow c"], "{storage:?}");
        let followed = format!(
            "(SELECT FROM {0} AS job JOIN {0} AS next ON next.args = to_jsonb(job.job_id) AND next.kind = 'follow ' || job.kind)",
            storage.table("ready_entries")
        );
        assert_eq!(rows(&client, &followed, &[]).await.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_and_generated_columns() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE SEQUENCE numbers;
                 CREATE FOREIGN TABLE orders (args jsonb DEFAULT jsonb_build_object('n', nextval('numbers')),
                     kind text GENERATED ALWAYS AS ('order_' || (args->>'n')) STORED, queue text DEFAULT 'orders', priority smallint)
                     SERVER awa_ingest OPTIONS (priority '3', queue 'overridden')",
            )
            .await
            .unwrap();
        client.batch_execute("INSERT INTO orders DEFAULT VALUES").await.expect("defaults only");
        assert_eq!(copy_csv(&client, "orders", "priority", "1\n__AWA_NULL__\n").await.expect("COPY"), 2);
        let returning = r#"INSERT INTO orders (args, queue) VALUES ('{"n": 9}', NULL) RETURNING kind, queue"#;
        let row = client.query_one(returning, &[]).await.expect(returning);
        assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("order_9", "overridden"));
        let job = |n: i32, queue: &str, priority: i32| json!({"kind": format!("order_{n}"), "args": {"n": n}, "queue": queue, "priority": priority});
        let expected = [job(1, "orders", 3), job(2, "orders", 1), job(3, "orders", 3), job(9, "overridden", 3)];
        assert_same_rows(&format!("{storage:?}"), &expected, &jobs(&client, storage, "kind, args, queue, priority").await);
        assert_eq!(failure(client.batch_execute("INSERT INTO orders (kind) VALUES ('x')").await).sqlstate, "428C9");
    }
}

/// A column of a domain or with another collation is still of its type; inherited tables are as good as any.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_an_inheritance_tree() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE TABLE parent (kind text, args jsonb);
                 CREATE FOREIGN TABLE child (queue varchar(20) COLLATE \"C\", job_id bigint) INHERITS (parent) SERVER awa_ingest",
            )
            .await
            .unwrap();
        assert_eq!(copy_csv(&client, "child", "kind, queue", "k,q\n").await.expect("COPY"), 1);
        client.batch_execute("INSERT INTO child (kind, args, queue) VALUES ('l', '1', 'q')").await.expect("INSERT");
        assert_eq!(stored_kinds(&client, storage).await, ["k", "l"], "{storage:?}");
        client.batch_execute("INSERT INTO parent VALUES ('local', '1')").await.expect("the parent itself is local");
        assert_eq!(failure(client.query("TABLE parent", &[]).await).sqlstate, "0A000", "{storage:?}");
        assert_eq!(client.query("TABLE ONLY parent", &[]).await.unwrap().len(), 1);
    }
}
