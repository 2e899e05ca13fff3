//! Where calls can stand, and who sees their jobs when: as with any function that inserts a row.

use awa_ingest_tests::{Db, Storage, Stored, Worker, failure, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::setup::{assert_lanes_are_whole, attached, engine, insert, numbers, ready_args, run};

/// Runs `query` in both databases, which must answer the same, and returns the answer.
async fn both(clients: &[Client; 2], query: &str) -> Vec<Value> {
    let sql = format!("SELECT to_jsonb(answer) FROM ({query}) AS answer");
    let mut answers = Vec::new();
    for client in clients {
        let rows = client.query(&sql, &[]).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
        answers.push(rows.iter().map(|row| row.get(0)).collect::<Vec<Value>>());
    }
    assert_eq!(answers[1], answers[0], "{query}");
    answers.remove(1)
}

/// awa's own function, and the replacement.
async fn pair() -> [Client; 2] {
    [Db::awa().await.connect().await, attached().await.connect().await]
}

async fn assert_same(clients: &[Client; 2], what: &str) {
    let [expected, found] =
        [Stored::read_by_job(&clients[0], Storage::Attached).await, Stored::read_by_job(&clients[1], Storage::Attached).await];
    expected.assert_same(&found, what);
    assert_lanes_are_whole(&clients[1], "awa", what).await;
}

/// Functions that look: those that take a new look each time, and one that looks as the statement does.
const LOOKING: &str = "
    CREATE FUNCTION seen() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$ BEGIN RETURN (SELECT count(*) FROM awa.jobs); END $$;
    CREATE FUNCTION seen_in_sql() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT count(*) FROM awa.jobs';
    CREATE FUNCTION seen_by_id(n bigint) RETURNS bool LANGUAGE plpgsql VOLATILE AS $$ BEGIN
        RETURN EXISTS (SELECT FROM awa.ready_entries WHERE job_id = n UNION ALL SELECT FROM awa.deferred_jobs WHERE job_id = n
            UNION ALL SELECT FROM awa.jobs_hot WHERE id = n UNION ALL SELECT FROM awa.scheduled_jobs WHERE id = n); END $$;
    CREATE FUNCTION seen_at_first() RETURNS bigint LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN (SELECT count(*) FROM awa.jobs); END $$";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_visible_to_whatever_looks_next() {
    for state in ["active", "canonical"] {
        let clients = pair().await;
        for client in &clients {
            run(client, LOOKING).await;
            run(client, &engine(state)).await;
        }
        let call = "generate_series(1, 5) AS n, LATERAL awa.insert_job_compat('k', p_args => to_jsonb(n),
            p_state => (CASE n % 2 WHEN 0 THEN 'scheduled' ELSE 'available' END)::awa.job_state) AS job";
        let answers = both(&clients, &format!("SELECT n, seen(), seen_in_sql(), seen_by_id(job.id) FROM {call}")).await;
        let expected: Vec<_> = (1..=5).map(|n| json!({"n": n, "seen": n, "seen_in_sql": n, "seen_by_id": true})).collect();
        assert_eq!(answers, expected, "{state}");
        assert_eq!(both(&clients, "SELECT count(*) AS n FROM awa.jobs").await, [json!({"n": 5})], "by the next statement, {state}");

        // And to nobody who looks with the snapshot of the statement.
        both(&clients, &format!("SELECT n, seen_at_first() FROM {call}")).await;
        both(&clients, &format!("WITH new AS (SELECT job.id FROM {call}) SELECT (SELECT count(*) FROM new), (SELECT count(*) FROM awa.scheduled_jobs)")).await;
        both(&clients, "SELECT (job).id IS NOT NULL AS id, (SELECT count(*) FROM awa.ready_entries) AS n FROM (SELECT awa.insert_job_compat('k') AS job OFFSET 0) AS j").await;
    }
}

/// Statements that call it in every place a function can stand.
const PLACES: [&str; 14] = [
    "SELECT awa.insert_job_compat('k')",
    "SELECT (awa.insert_job_compat('k')).id",
    "SELECT * FROM awa.insert_job_compat('k') WITH ORDINALITY",
    "SELECT * FROM ROWS FROM (awa.insert_job_compat('a'), awa.insert_job_compat('b'))",
    "SELECT (awa.insert_job_compat('k', p_args => to_jsonb(n))).id FROM generate_series(1, 10) AS n",
    "SELECT job.* FROM generate_series(1, 10) AS n CROSS JOIN LATERAL awa.insert_job_compat('k', p_args => to_jsonb(n)) AS job ORDER BY n DESC",
    "SELECT job.* FROM generate_series(1, 10) AS n CROSS JOIN LATERAL awa.insert_job_compat('k', p_args => to_jsonb(n)) AS job LIMIT 3",
    "WITH new AS (SELECT * FROM awa.insert_job_compat('k')) SELECT a.id FROM new AS a JOIN new AS b USING (id)",
    "INSERT INTO sent SELECT id FROM awa.insert_job_compat('k')",
    "UPDATE sent SET id = (awa.insert_job_compat('k')).id",
    "INSERT INTO sent VALUES ((awa.insert_job_compat('k')).id) RETURNING (awa.insert_job_compat('returning')).id",
    "CREATE TABLE made AS SELECT * FROM awa.insert_job_compat('k'); DROP TABLE made",
    "COPY (SELECT id FROM awa.insert_job_compat('k')) TO '/dev/null'",
    "SELECT awa.insert_job_compat('k', 'q' || (awa.insert_job_compat('inner')).id)",
];

#[tokio::test(flavor = "multi_thread")]
async fn calls_stand_anywhere_in_sql() {
    for state in ["active", "canonical"] {
        let clients = pair().await;
        for statement in PLACES {
            for client in &clients {
                run(client, &format!("CREATE TABLE IF NOT EXISTS sent (id bigint); {}", engine(state))).await;
                run(client, statement).await;
            }
            both(&clients, "SELECT id, kind, queue, args FROM awa.jobs ORDER BY id").await;
            both(&clients, "SELECT * FROM sent ORDER BY id").await;
        }
        assert_same(&clients, state).await;
    }
}

const CALLERS: &str = "
    CREATE FUNCTION one(n int) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE x awa.jobs; BEGIN
        x := awa.insert_job_compat('one', p_args => to_jsonb(n)); RETURN x.id; END $$;
    CREATE FUNCTION many(n int) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE x record; total bigint := 0; BEGIN
        FOR i IN 1..n LOOP
            SELECT * INTO STRICT x FROM awa.insert_job_compat('many', 'q' || i % 2, to_jsonb(i));
            total := total + (SELECT count(*) FROM awa.jobs WHERE id = x.id);
        END LOOP; RETURN total; END $$;
    CREATE FUNCTION caught(n int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
        BEGIN
            PERFORM awa.insert_job_compat('lost', 'q0', to_jsonb(n));
            PERFORM awa.insert_job_compat('lost', 'own lane ' || n, to_jsonb(n));
            RAISE 'no' USING ERRCODE = 'AB123';
        EXCEPTION WHEN SQLSTATE 'AB123' THEN
            PERFORM awa.insert_job_compat('kept', 'q0', to_jsonb(n));
        END;
        PERFORM awa.insert_job_compat('kept', 'own lane ' || n, to_jsonb(n));
        RETURN 'kept'; END $$;
    CREATE FUNCTION once(n int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
        PERFORM awa.insert_job_compat('once', 'q1', to_jsonb(n), p_unique_key => int4send(n), p_unique_states => '11111111');
        RETURN 'new'; EXCEPTION WHEN unique_violation THEN RETURN 'taken'; END $$;
    CREATE PROCEDURE in_transactions(n int) LANGUAGE plpgsql AS $$ BEGIN
        FOR i IN 1..n LOOP
            PERFORM awa.insert_job_compat('step', 'q0', to_jsonb(i));
            IF i % 3 = 0 THEN ROLLBACK; ELSE COMMIT; END IF;
        END LOOP; END $$;
    CREATE FUNCTION in_sql(n int) RETURNS SETOF awa.jobs LANGUAGE sql AS
        'SELECT job.* FROM generate_series(1, n) AS i, LATERAL awa.insert_job_compat(''sql'', ''q1'', to_jsonb(i)) AS job';
    CREATE TABLE orders (n int);
    CREATE FUNCTION on_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM awa.insert_job_compat('order', 'q0', to_jsonb(NEW.n)); RETURN NEW; END $$;
    CREATE TRIGGER on_order BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION on_order()";

#[tokio::test(flavor = "multi_thread")]
async fn functions_procedures_and_triggers_call_it() {
    for state in ["active", "canonical"] {
        let clients = pair().await;
        for client in &clients {
            run(client, &format!("{CALLERS}; {}", engine(state))).await;
        }
        both(&clients, "SELECT one(n) FROM generate_series(1, 4) AS n").await;
        assert_eq!(both(&clients, "SELECT many(10)").await, [json!({"many": 10})]);
        both(&clients, "SELECT caught(n) FROM generate_series(1, 3) AS n").await;
        let once = both(&clients, "SELECT once(1 + n % 3) FROM generate_series(1, 6) AS n").await;
        assert_eq!(once.iter().filter(|row| row["once"] == "taken").count(), 3);
        both(&clients, "SELECT count(*) FROM in_sql(5)").await;
        for client in &clients {
            run(client, "CALL in_transactions(7)").await;
            run(client, "INSERT INTO orders SELECT generate_series(1, 5)").await;
            run(client, "DO $$ BEGIN FOR i IN 1..5 LOOP PERFORM awa.insert_job_compat('do', 'q1', to_jsonb(i)); END LOOP; END $$")
                .await;
        }
        both(&clients, "SELECT kind, queue, args FROM awa.jobs ORDER BY id").await;
        assert!(rows(&clients[1], "(SELECT FROM awa.jobs WHERE kind = 'lost')", &[]).await.is_empty());
        assert_lanes_are_whole(&clients[1], "awa", state).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_drains_what_functions_left() {
    let db = attached().await;
    let client = db.connect().await;
    run(&client, CALLERS).await;
    for call in
        ["SELECT many(10), caught(1), caught(2), once(1), once(1)", "CALL in_transactions(7)", "INSERT INTO orders VALUES (1), (2)"]
    {
        run(&client, call).await;
    }
    let count: i64 = client.query_one("SELECT count(*) FROM awa.jobs", &[]).await.unwrap().get(0);
    assert_eq!(count, 10 + 4 + 1 + 5 + 2);
    let mut worker = Worker::builder();
    for queue in ["q0", "q1", "own lane 1", "own lane 2"] {
        worker = worker.queue(queue);
    }
    for kind in ["many", "kept", "once", "step", "order", "lost"] {
        worker = worker.kind(kind);
    }
    let worker = worker.start(&db).await;
    worker.wait_for(count as usize).await;
    assert!(worker.stop().await.iter().all(|job| job.kind != "lost"));
}

/// Both sides of a cursor that is read on after a savepoint was rolled back: what was fetched since then is gone, the rest is not.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_go_on_after_a_savepoint() {
    let clients = pair().await;
    let cursor = "DECLARE c CURSOR FOR SELECT n, job.id FROM generate_series(1, 12) AS n, LATERAL awa.insert_job_compat('k', p_args => to_jsonb(n)) AS job";
    for end in ["COMMIT", "ROLLBACK", "COMMIT"] {
        for client in &clients {
            let steps = [
                "BEGIN",
                cursor,
                "FETCH 3 FROM c",
                "SAVEPOINT s",
                "FETCH 3 FROM c",
                "SELECT awa.insert_job_compat('between', p_args => '100')",
                "ROLLBACK TO s",
                "SELECT awa.insert_job_compat('after', p_args => '101')",
                "FETCH 2 FROM c",
                "RELEASE s",
                "FETCH 2 FROM c",
                "SELECT awa.insert_job_compat('last', p_args => '102')",
                "CLOSE c",
                end,
            ];
            for step in steps {
                run(client, step).await;
            }
        }
        assert_same(&clients, end).await;
    }
    let one = json!([1, 2, 3, 101, 7, 8, 9, 10, 102]);
    let both: Vec<&Value> = one.as_array().unwrap().iter().chain(one.as_array().unwrap()).collect();
    assert_eq!(ready_args(&clients[1]).await, json!(both));
}

#[tokio::test(flavor = "multi_thread")]
async fn held_cursors_and_prepared_statements() {
    let client = attached().await.connect().await;
    let hold = "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT job.id FROM generate_series(1, 10) AS n, LATERAL awa.insert_job_compat('k', p_args => to_jsonb(n)) AS job; FETCH 3 FROM c; COMMIT; CLOSE c";
    run(&client, hold).await;
    assert_eq!(ready_args(&client).await, numbers(1, 10));
    let statement = client.prepare("SELECT id FROM awa.insert_job_compat('k', p_args => $1)").await.unwrap();
    for number in 11..=60i64 {
        if number % 20 == 0 {
            run(&client, "DISCARD PLANS").await;
        }
        client.query_one(&statement, &[&json!(number)]).await.unwrap();
    }
    assert_eq!(ready_args(&client).await, numbers(1, 60));
    assert_lanes_are_whole(&client, "awa", "prepared").await;
}

/// Whatever the caller's search path says, and the caller finds it unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn the_search_path_is_the_callers() {
    let client = attached().await.connect().await;
    run(&client, "CREATE SCHEMA evil; CREATE TABLE evil.ready_entries (n int); CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE sql AS 'SELECT 1/0'").await;
    for path in ["evil, pg_catalog, awa", "nowhere", "''", "pg_temp, evil"] {
        for state in ["active", "canonical"] {
            run(&client, &engine(state)).await;
            run(&client, &format!("SET search_path = {path}")).await;
            let before: String = client.query_one("SELECT current_setting('search_path')", &[]).await.unwrap().get(0);
            insert(&client, "'k'").await;
            insert(&client, "'k', 'lane of ' || current_setting('search_path'), p_unique_key => convert_to(current_setting('search_path'), 'UTF8'), p_unique_states => B'01000000'").await;
            let after: String = client.query_one("SELECT current_setting('search_path')", &[]).await.unwrap().get(0);
            assert_eq!(after, before);
            run(&client, "RESET search_path; TRUNCATE awa.job_unique_claims").await;
        }
    }
}

/// A refused call within a loop of a client's own is an error like any other.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_the_middle_leaves_the_session_usable() {
    let client = attached().await.connect().await;
    for number in 0..20 {
        let refused = failure(
            client
                .batch_execute("SELECT awa.insert_job_compat('k', p_priority => (3 - n)::smallint) FROM generate_series(1, 5) AS n")
                .await,
        );
        assert_eq!(refused.sqlstate, "23514");
        insert(&client, &format!("'k', p_args => '{number}'")).await;
    }
    assert_eq!(ready_args(&client).await, numbers(0, 19));
}
