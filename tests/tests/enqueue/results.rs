//! What a call returns, and where it can stand in SQL.

use awa_ingest_tests::{Storage, failure, jobs, rows};
use jobs::Enqueued;
use serde_json::{Value, json};
use tokio_postgres::Client;

async fn query(client: &Client, sql: &str) -> Vec<Enqueued> {
    client.query(sql, &[]).await.expect(sql).into_iter().map(Enqueued::from).collect()
}

/// Ids in the storage by the number that is their args.
async fn stored(client: &Client, storage: Storage) -> Vec<(i64, i64)> {
    let sql = format!(
        "SELECT args::text::bigint, job_id FROM {} UNION ALL SELECT args::text::bigint, job_id FROM {} ORDER BY 1, 2",
        storage.table("ready_entries"),
        storage.table("deferred_jobs")
    );
    client.query(&sql, &[]).await.expect(&sql).iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Lanes and kinds of storage in turn, so that input order is nobody's order but the input's.
fn mixed(number: i64) -> Value {
    let mut job = json!({"kind": "k", "args": number, "queue": format!("q{}", (number * 7) % 5), "priority": 1 + (number * 3) % 4});
    if number % 3 == 0 {
        job["run_at"] = json!("2030-01-01");
    }
    if number % 2 == 0 {
        job["unique_key"] = json!(format!("{:08x}", number.wrapping_mul(2_654_435_761) as u32));
        job["unique_states"] = json!("11000000");
    }
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_in_input_order_with_ascending_ids() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let batch: Value = (1..=1000).map(mixed).collect();
        let rows = client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&batch]).await.unwrap();
        assert_eq!(rows[0].columns().iter().map(|c| c.name()).collect::<Vec<_>>(), ["ord", "job_id", "conflicts_with"]);
        let answer: Vec<Enqueued> = rows.into_iter().map(Enqueued::from).collect();
        let ids: Vec<i64> = answer.iter().map(|row| row.job_id.expect("enqueued")).collect();
        assert_eq!(answer.iter().map(|row| row.ord).collect::<Vec<_>>(), (1..=1000).collect::<Vec<_>>());
        assert!(ids.is_sorted_by(|a, b| a < b), "{storage:?}");
        assert!(answer.iter().all(|row| row.conflicts_with.is_none()));
        let by_number: Vec<(i64, i64)> = (1..=1000).zip(ids).collect();
        assert_eq!(stored(&client, storage).await, by_number, "each id is that of its job, {storage:?}");

        let columns = "SELECT * FROM awa.enqueue_columns(array_fill('k'::text, ARRAY[5]), ARRAY(SELECT to_jsonb(n) FROM generate_series(2001, 2005) AS n))";
        let answer = query(&client, columns).await;
        assert_eq!(answer.iter().map(|row| row.ord).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        let added: Vec<(i64, i64)> = (2001..).zip(answer.iter().filter_map(|row| row.job_id)).collect();
        assert_eq!(stored(&client, storage).await[1000..], added);
        let single: i64 = client.query_one("SELECT awa.enqueue('k', '3000')", &[]).await.unwrap().get(0);
        assert_eq!(stored(&client, storage).await.last(), Some(&(3000, single)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_job_names_the_holder() {
    let job = |key: &str| json!({"kind": "k", "args": 0, "unique_key": key, "unique_states": "11111111"});
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let holder = client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&json!([job("aa")])]).await.unwrap()[0]
            .get::<_, i64>("job_id");
        let mut deferred = job("dd");
        deferred["run_at"] = json!("2030-01-01");
        let batch = json!([job("bb"), job("aa"), job("bb"), {"kind": "k", "args": 1}, deferred, job("dd"), job("bb")]);
        let answer = client.query("SELECT * FROM awa.enqueue_batch($1::jsonb, 'skip')", &[&batch]).await.unwrap();
        let answer: Vec<Enqueued> = answer.into_iter().map(Enqueued::from).collect();
        let (first, fifth) = (answer[0].job_id, answer[4].job_id);
        let expected =
            [(true, None), (false, Some(holder)), (false, first), (true, None), (true, None), (false, fifth), (false, first)];
        for (row, (enqueued, conflicts_with)) in answer.iter().zip(expected) {
            assert_eq!((row.job_id.is_some(), row.conflicts_with), (enqueued, conflicts_with), "{row:?}, {storage:?}");
        }
        assert_eq!(answer.iter().map(|row| row.ord).collect::<Vec<_>>(), (1..=7).collect::<Vec<_>>());

        let refused =
            failure(client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&json!([job("ee"), job("ff"), job("ee")])]).await);
        assert_eq!((refused.sqlstate.as_str(), refused.ordinal()), ("23505", Some(3)), "{refused:?}");
        let refused = failure(client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&json!([job("ee"), job("aa")])]).await);
        assert!(refused.detail.contains(&format!("the job with id {holder}.")), "the stored holder: {refused:?}");
    }
}

/// Statements that enqueue, and how many jobs they do.
const STATEMENTS: [(&str, usize); 14] = [
    ("SELECT awa.enqueue('k', to_jsonb(n)) FROM generate_series(1, 20) AS n", 20),
    ("SELECT awa.enqueue('k', '1'), awa.enqueue('k', '2'), awa.enqueue('k', '3', run_at => now())", 3),
    (
        "WITH e AS (SELECT * FROM awa.enqueue_batch('[{\"kind\": \"k\", \"args\": 1}, {\"kind\": \"k\", \"args\": 2}]')) SELECT * FROM e JOIN e AS f USING (ord)",
        2,
    ),
    ("WITH e AS (SELECT awa.enqueue('k', '1')) SELECT 1", 0),
    ("INSERT INTO sent SELECT job_id FROM awa.enqueue_columns('{k}', ARRAY['1', '2']::jsonb[])", 2),
    ("INSERT INTO sent VALUES (awa.enqueue('k', '1')) RETURNING id", 1),
    ("UPDATE request SET job = awa.enqueue('k', to_jsonb(n))", 3),
    (
        "SELECT * FROM request, LATERAL awa.enqueue_batch(jsonb_build_array(jsonb_build_object('kind', 'k', 'args', n), '{\"kind\": \"k\", \"args\": 0}'::jsonb))",
        6,
    ),
    ("SELECT awa.enqueue_batch('[{\"kind\": \"k\", \"args\": 1}]'), n FROM request", 3),
    (
        "SELECT * FROM awa.enqueue_batch('[{\"kind\": \"k\", \"args\": 1}]') UNION ALL SELECT * FROM awa.enqueue_columns('{k}', '{2}'::jsonb[])",
        2,
    ),
    ("SELECT * FROM awa.enqueue_columns('{k}', '{1,2,3,4}'::jsonb[]) ORDER BY ord DESC LIMIT 1", 4),
    ("SELECT * FROM ROWS FROM (awa.enqueue_columns('{k}', '{1}'::jsonb[]), awa.enqueue_batch('[]')) WITH ORDINALITY", 1),
    ("CREATE TABLE made AS SELECT * FROM awa.enqueue_columns('{k}', '{1,2}'::jsonb[]); DROP TABLE made", 2),
    ("COPY (SELECT awa.enqueue('k', '1')) TO '/dev/null'", 1),
];

#[tokio::test(flavor = "multi_thread")]
async fn calls_stand_anywhere_in_sql() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(
                "CREATE TABLE sent (id bigint); CREATE TABLE request (n int, job bigint); INSERT INTO request VALUES (1), (2), (3)",
            )
            .await
            .unwrap();
        let mut total = 0;
        for (statement, jobs) in STATEMENTS {
            client.batch_execute(statement).await.expect(statement);
            total += jobs;
            assert_eq!(stored(&client, storage).await.len(), total, "{statement}, {storage:?}");
        }
        let sent = format!(
            "(SELECT id FROM sent UNION ALL SELECT job FROM request EXCEPT SELECT job_id FROM {})",
            storage.table("ready_entries")
        );
        assert!(rows(&client, &sent, &[]).await.is_empty(), "the ids are the jobs' own");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_and_triggers_enqueue() {
    let setup = "CREATE TABLE orders (id int);
        CREATE FUNCTION enqueue_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM awa.enqueue('order', to_jsonb(NEW.id), uniqueness => 'true'); RETURN NEW; END $$;
        CREATE TRIGGER enqueue AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION enqueue_order();
        CREATE FUNCTION enqueue_or_find(n int) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE id bigint; BEGIN
            SELECT coalesce(e.job_id, e.conflicts_with) INTO id FROM awa.enqueue_batch(
                jsonb_build_array(jsonb_build_object('kind', 'order', 'args', n, 'unique', true)), 'skip') AS e;
            RETURN id; END $$;
        CREATE FUNCTION enqueue_caught(n int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            PERFORM awa.enqueue('order', to_jsonb(n), uniqueness => 'true'); RETURN 'new';
            EXCEPTION WHEN unique_violation THEN RETURN 'taken'; END $$";
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(setup).await.unwrap();
        client.batch_execute("INSERT INTO orders SELECT generate_series(1, 10)").await.unwrap();
        assert_eq!(failure(client.batch_execute("INSERT INTO orders VALUES (11), (3)").await).sqlstate, "23505");
        let numbers: Vec<i64> = stored(&client, storage).await.into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, (1..=10).collect::<Vec<_>>(), "{storage:?}");

        let same = "SELECT count(DISTINCT enqueue_or_find(5 + n % 2)) FROM generate_series(1, 10) AS n";
        assert_eq!(client.query_one(same, &[]).await.unwrap().get::<_, i64>(0), 2);
        let caught = client.query("SELECT enqueue_caught(n) FROM generate_series(9, 13) AS n", &[]).await.unwrap();
        let caught: Vec<&str> = caught.iter().map(|row| row.get(0)).collect();
        assert_eq!(caught, ["taken", "taken", "new", "new", "new"]);
        assert_eq!(stored(&client, storage).await.len(), 13);
    }
}

/// A trigger on the storage itself that enqueues again: a call within a call.
#[tokio::test(flavor = "multi_thread")]
async fn calls_nest() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let setup = format!(
            "CREATE FUNCTION follow_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM awa.enqueue_batch(jsonb_build_array(jsonb_build_object('kind', 'second', 'args', NEW.args, 'queue', 'next', 'unique', true)), 'skip');
                 RETURN NEW; END $$;
             CREATE TRIGGER follow_up AFTER INSERT ON {} FOR EACH ROW WHEN (NEW.kind = 'first') EXECUTE FUNCTION follow_up()",
            storage.table("ready_entries")
        );
        client.batch_execute(&setup).await.unwrap();
        let batch: Value = (0..20).map(|n| json!({"kind": if n % 2 == 0 { "first" } else { "other" }, "args": n % 6})).collect();
        let answer = client.query("SELECT * FROM awa.enqueue_batch($1::jsonb)", &[&batch]).await.unwrap();
        assert_eq!(answer.len(), 20);
        let kinds =
            rows(&client, &format!("(SELECT kind, count(*) FROM {} GROUP BY kind)", storage.table("ready_entries")), &[]).await;
        let expected =
            [json!({"kind": "first", "count": 10}), json!({"kind": "other", "count": 10}), json!({"kind": "second", "count": 3})];
        awa_ingest_tests::assert_same_rows("jobs", &expected, &kinds);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_and_prepared_statements() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM awa.enqueue_columns('{k}', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 100) AS n))").await.unwrap();
        assert_eq!(query(&client, "FETCH 3 FROM c").await.iter().map(|row| row.ord).collect::<Vec<_>>(), [1, 2, 3]);
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(query(&client, "FETCH ALL FROM c").await.len(), 97);
        assert_eq!(stored(&client, storage).await.len(), 100);

        let batch = client.prepare("SELECT * FROM awa.enqueue_batch($1::jsonb)").await.unwrap();
        let columns = client.prepare("SELECT * FROM awa.enqueue_columns($1, $2::jsonb[])").await.unwrap();
        let single = client.prepare("SELECT awa.enqueue('k', $1)").await.unwrap();
        for number in 0..50i32 {
            if number == 25 {
                client.batch_execute("DISCARD PLANS; SET search_path = nowhere").await.unwrap();
            }
            let jobs: Value = (0..number).map(|n| json!({"kind": "k", "args": n})).collect();
            assert_eq!(client.query(&batch, &[&jobs]).await.unwrap().len(), number as usize);
            let args: Vec<Value> = (0..number).map(Value::from).collect();
            assert_eq!(client.query(&columns, &[&vec!["k"; args.len()], &args]).await.unwrap().len(), args.len());
            client.query_one(&single, &[&json!(number)]).await.unwrap();
        }
        assert_eq!(stored(&client, storage).await.len(), 100 + 2 * (0..50).sum::<usize>() + 50, "{storage:?}");
    }
}

/// Where nothing may be written, nothing is.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_transaction_refuses() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let calls = [
            "SELECT awa.enqueue('k')",
            "SELECT awa.enqueue('k', run_at => now())",
            "SELECT awa.enqueue('k', uniqueness => 'true', run_at => now())",
        ];
        for call in calls {
            client.batch_execute("BEGIN READ ONLY").await.unwrap();
            assert_eq!(failure(client.batch_execute(call).await).sqlstate, "25006", "{call}, {storage:?}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        assert!(stored(&client, storage).await.is_empty());
    }
}
