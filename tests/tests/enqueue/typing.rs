//! Arguments as people and drivers write them: every call finds exactly one function, whatever types its arguments have.

use awa_ingest_tests::{Db, Storage, failure};
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

const UNIQUE: &str = r#"{"by_queue": true}"#;

/// What was stored last, but for its id.
async fn last_job(client: &Client, storage: Storage) -> (String, Value, String, i16, i16, Option<Value>, bool) {
    let sql = format!(
        "SELECT kind, args, queue, priority, max_attempts, payload, unique_key IS NOT NULL FROM {} ORDER BY job_id DESC LIMIT 1",
        storage.table("ready_entries")
    );
    let row = client.query_one(&sql, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5), row.get(6))
}

/// Every mix of types, by name and by place: the job is the same.
#[tokio::test(flavor = "multi_thread")]
async fn one_job_in_every_type() {
    let kinds = ["'k'", "'k'::text", "'k'::varchar"];
    let json_types = ["", "::jsonb", "::json", "::text", "::varchar"];
    let numbers = ["1", "'1'", "1::smallint", "1::bigint"];
    let uniqueness =
        [format!("'{UNIQUE}'"), format!("'{UNIQUE}'::jsonb"), format!("'{UNIQUE}'::json"), "true".into(), "'true'::text".into()];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let expected = ("k".to_owned(), json!({"a": 1}), "q".to_owned(), 1i16, 3i16, Some(json!({"metadata": {"m": 1}})), true);
        let mut turn = 0;
        for kind in kinds {
            for args in json_types {
                for metadata in json_types {
                    for number in numbers {
                        let unique = &uniqueness[turn % uniqueness.len()];
                        let max_attempts = number.replace('1', "3");
                        turn += 1;
                        let named = format!(
                            "SELECT awa.enqueue({kind}, args => '{{\"a\": 1}}'{args}, queue => 'q', priority => {number}, max_attempts => {max_attempts},
                             metadata => '{{\"m\": 1}}'{metadata}, uniqueness => {unique})"
                        );
                        let placed = format!(
                            "SELECT awa.enqueue({kind}, '{{\"a\": 1}}'{args}, 'q', {number}, {max_attempts}, NULL, '{{\"m\": 1}}'{metadata}, '{{}}', {unique})"
                        );
                        for sql in [named, placed] {
                            client.batch_execute("BEGIN").await.unwrap();
                            client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
                            assert_eq!(last_job(&client, storage).await, expected, "{sql}");
                            client.batch_execute("ROLLBACK").await.unwrap();
                        }
                    }
                }
            }
        }
    }
}

/// What most people write.
#[tokio::test(flavor = "multi_thread")]
async fn short_calls_are_not_ambiguous() {
    let calls = [
        "SELECT awa.enqueue('k')",
        "SELECT awa.enqueue('k'::varchar)",
        "SELECT awa.enqueue(kind => 'k', queue => 'q')",
        "SELECT awa.enqueue('k', priority => 1)",
        "SELECT awa.enqueue('k', priority => count(*)) FROM generate_series(1, 3)",
        "SELECT awa.enqueue('k', metadata => '{}'::json)",
        "SELECT awa.enqueue('k', row_to_json(r)) FROM (SELECT 1 AS a) AS r",
        "SELECT awa.enqueue('k', json_build_object('a', 1), priority => 1, max_attempts => 3, uniqueness => true)",
        "SELECT awa.enqueue('k', to_jsonb(r)) FROM (SELECT 1 AS a) AS r",
        "SELECT awa.enqueue('k', uniqueness => false)",
        "SELECT awa.enqueue('k', uniqueness => NULL)",
        "SELECT awa.enqueue('k', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "SELECT awa.enqueue(CAST('k' AS varchar), CAST('{}' AS json), CAST('q' AS varchar), CAST(1 AS integer), CAST(2 AS bigint))",
        "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]')",
        "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]', 'skip')",
        "SELECT awa.enqueue_batch(jobs => '[{\"kind\": \"k\"}]', on_conflict => 'skip')",
        "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]'::text)",
        "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]'::varchar)",
        "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]'::json)",
        "SELECT awa.enqueue_batch('[{\"kind\": \"k\"}]'::jsonb)",
        "SELECT awa.enqueue_batch(json_agg(json_build_object('kind', 'k')))",
        "SELECT awa.enqueue_columns('{k}')",
        "SELECT awa.enqueue_columns('{k}', '{1}')",
        "SELECT awa.enqueue_columns('{k}', ARRAY['{\"a\": 1}'], priority => ARRAY[1], max_attempts => ARRAY[3])",
        "SELECT awa.enqueue_columns('{k}', ARRAY['1'::json], priority => ARRAY[1::smallint])",
        "SELECT awa.enqueue_columns(ARRAY['k'::varchar], ARRAY['1'::varchar], tags => '{\"[]\"}')",
        "SELECT awa.enqueue_columns('{k}', ARRAY['1'::jsonb], metadata => '{\"{}\"}')",
        "DO $$ BEGIN PERFORM awa.enqueue('k', '{}', priority => 1, uniqueness => true); END $$",
        "DO $$ DECLARE u jsonb := 'true'; p int := 2; BEGIN PERFORM awa.enqueue('k', '1', priority => p, uniqueness => u); END $$",
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for call in calls {
            client.batch_execute("BEGIN").await.unwrap();
            client.batch_execute(call).await.unwrap_or_else(|error| panic!("{call}: {error:?}"));
            assert_eq!(last_job(&client, storage).await.0, "k", "{call}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

/// Clients that ask the server for the types of their parameters learn ones that they can bind.
#[tokio::test]
async fn untyped_parameters_have_common_types() {
    let client = Db::embedded().await.connect().await;
    let cases: [(&str, &[Type]); 8] = [
        ("SELECT awa.enqueue($1, $2, priority => $3)", &[Type::TEXT, Type::JSONB, Type::INT4]),
        ("SELECT awa.enqueue($1, $2, uniqueness => true)", &[Type::TEXT, Type::JSONB]),
        ("SELECT awa.enqueue($1, uniqueness => $2, on_conflict => $3)", &[Type::TEXT, Type::TEXT, Type::TEXT]),
        ("SELECT awa.enqueue($1, $2::json, priority => $3)", &[Type::VARCHAR, Type::JSON, Type::INT8]),
        (
            "SELECT awa.enqueue($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10, $11)",
            &[
                Type::TEXT,
                Type::JSONB,
                Type::TEXT,
                Type::INT4,
                Type::INT4,
                Type::TIMESTAMPTZ,
                Type::JSONB,
                Type::TEXT_ARRAY,
                Type::JSONB,
                Type::TEXT,
                Type::TEXT,
            ],
        ),
        ("SELECT awa.enqueue_batch($1, $2)", &[Type::TEXT, Type::TEXT]),
        ("SELECT awa.enqueue_columns($1, $2, priority => $3)", &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT4_ARRAY]),
        ("SELECT awa.enqueue_columns($1, $2::jsonb[], metadata => $3)", &[Type::TEXT_ARRAY, Type::JSONB_ARRAY, Type::JSONB_ARRAY]),
    ];
    for (sql, types) in cases {
        let statement = client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(statement.params(), types, "{sql}");
    }
    client.query_one("SELECT awa.enqueue($1, $2, priority => $3)", &[&"k", &json!({"a": 1}), &1i32]).await.unwrap();
    client.query_one("SELECT awa.enqueue($1, uniqueness => $2)", &[&"k", &"true"]).await.unwrap();
    client.query("SELECT awa.enqueue_batch($1)", &[&r#"[{"kind": "k"}]"#]).await.unwrap();
    let jobs: Vec<_> = client.query("SELECT job_id FROM awa_ingest.ready_entries", &[]).await.unwrap();
    assert_eq!(jobs.len(), 3);
}

/// Parameters that a client types itself, as sqlx and most mappers do: declared with PREPARE.
#[tokio::test]
async fn typed_parameters_are_taken() {
    let client = Db::embedded().await.connect().await;
    let declared = [
        "text, jsonb, smallint, boolean",
        "text, jsonb, integer, jsonb",
        "text, json, integer, boolean",
        "varchar, varchar, integer, boolean",
        "varchar, varchar, bigint, varchar",
        "varchar, unknown, bigint, boolean",
        "unknown, unknown, smallint, boolean",
        "unknown, unknown, unknown, unknown",
        "text, text, bigint, json",
        "unknown, json, unknown, unknown",
        "unknown, varchar, smallint, unknown",
    ];
    for types in declared {
        let sql = format!(
            "PREPARE p ({types}) AS SELECT awa.enqueue($1, $2, priority => $3, uniqueness => $4, queue => '{types}');
             EXECUTE p ('k', '{{\"a\": 1}}', '3', 'true'); DEALLOCATE p"
        );
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{types}: {error:?}"));
        let job = client.query_one("SELECT queue, args, priority FROM awa_ingest.ready_entries ORDER BY job_id DESC", &[]).await;
        let job = job.unwrap();
        assert_eq!((job.get::<_, &str>(0), job.get::<_, Value>(1), job.get::<_, i16>(2)), (types, json!({"a": 1}), 3));
        client.batch_execute("TRUNCATE awa_ingest.ready_entries, awa_ingest.job_unique_claims").await.unwrap();
    }
}

/// Errors are those of a job, whatever type the argument had.
#[tokio::test(flavor = "multi_thread")]
async fn errors_do_not_depend_on_the_type() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for number in ["0", "5", "70000", "-70000", "2147483648", "9223372036854775807"] {
            for (key, constraint) in [("priority", "priority_in_range"), ("max_attempts", "max_attempts_range")] {
                let number = if key == "max_attempts" && number == "5" { "1001" } else { number };
                let refused = failure(client.query(&format!("SELECT awa.enqueue('k', {key} => {number})"), &[]).await);
                assert_eq!(
                    (refused.sqlstate.as_str(), refused.constraint.as_str()),
                    ("23514", constraint),
                    "{number}: {refused:?}"
                );
                assert_eq!((refused.ordinal(), refused.column.as_str()), (Some(1), key));
            }
        }
        let array = failure(client.query("SELECT awa.enqueue_columns('{k,k}', priority => ARRAY[1, 70000])", &[]).await);
        assert_eq!((array.sqlstate.as_str(), array.ordinal()), ("23514", Some(2)), "{array:?}");
        for kind in ["text", "varchar"] {
            for (json, sqlstate) in [("{", "22P02"), ("{\"a\": \"\\u0000\"}", "22P05"), ("", "22P02")] {
                for key in ["args", "metadata", "uniqueness"] {
                    let refused = failure(client.query(&format!("SELECT awa.enqueue('k', {key} => '{json}'::{kind})"), &[]).await);
                    assert_eq!((refused.sqlstate.as_str(), refused.column.as_str()), (sqlstate, key), "{json}: {refused:?}");
                    assert!(refused.context.contains(&format!("job 1, {key}")), "{refused:?}");
                }
                let refused = failure(client.query("SELECT awa.enqueue_columns('{k}', ARRAY['1', $1]::text[])", &[&json]).await);
                assert_eq!((refused.sqlstate.as_str(), refused.column.as_str()), (sqlstate, "args"), "{json}: {refused:?}");
                assert!(refused.context.contains("job 2, args"), "{refused:?}");
                let batch = failure(client.query("SELECT awa.enqueue_batch($1)", &[&json]).await);
                assert_eq!(batch.sqlstate, sqlstate, "{json}: {batch:?}");
            }
        }
        assert_eq!(failure(client.query("SELECT awa.enqueue('k', '{}', 'q', 2, 1, NULL, '1'::text)", &[]).await).sqlstate, "22023");
    }
}

/// A job that is skipped has no id, and the transaction goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_job_can_be_skipped() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let enqueue = async |policy: &str| -> Result<Option<i64>, tokio_postgres::Error> {
            let sql = "SELECT awa.enqueue('k', '{\"a\": 1}', uniqueness => true, on_conflict => $1)";
            client.query_one(sql, &[&policy]).await.map(|row| row.get(0))
        };
        client.batch_execute("BEGIN").await.unwrap();
        assert!(enqueue("skip").await.unwrap().is_some());
        assert_eq!(enqueue("skip").await.unwrap(), None);
        client.batch_execute("SAVEPOINT s").await.unwrap();
        let refused = failure(enqueue("error").await);
        assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"));
        client.batch_execute("ROLLBACK TO s; SELECT awa.enqueue('other'); COMMIT").await.unwrap();
        assert_eq!(enqueue("skip").await.unwrap(), None, "taken by a committed job");
        let stored = format!("SELECT count(*) FROM {}", storage.table("ready_entries"));
        assert_eq!(client.query_one(&stored, &[]).await.unwrap().get::<_, i64>(0), 2, "{storage:?}");
    }
}

/// Both words, but not both at once.
#[tokio::test]
async fn unique_has_two_names_in_a_job_object() {
    let client = Db::embedded().await.connect().await;
    client.batch_execute("SELECT awa.enqueue_batch('[{\"kind\": \"k\", \"uniqueness\": {\"by_queue\": true}}]')").await.unwrap();
    let again =
        failure(client.query("SELECT awa.enqueue_batch('[{\"kind\": \"k\", \"unique\": {\"by_queue\": true}}]')", &[]).await);
    assert_eq!(again.sqlstate, "23505");
    let both =
        failure(client.query("SELECT awa.enqueue_batch('[{\"kind\": \"k\", \"unique\": true, \"uniqueness\": true}]')", &[]).await);
    assert_eq!((both.sqlstate.as_str(), both.ordinal(), both.column.as_str()), ("22023", Some(1), "uniqueness"));
}

/// An unknown name is answered with the one that was probably meant.
#[tokio::test]
async fn hints_name_what_was_meant() {
    let client = Db::embedded().await.connect().await;
    let cases = [
        (r#"SELECT awa.enqueue_batch('[{"kind": "k", "prioritee": 1}]')"#, "22023", Some("priority")),
        (r#"SELECT awa.enqueue_batch('[{"kind": "k", "maxAttempts": 1}]')"#, "22023", Some("max_attempts")),
        (r#"SELECT awa.enqueue_batch('[{"kind": "k", "colour": 1}]')"#, "22023", None),
        (r#"SELECT awa.enqueue_batch('[{"kind": "k", "state": "Available"}]')"#, "22023", Some("available")),
        (r#"SELECT awa.enqueue('k', uniqueness => '{"by_arg": true}')"#, "22023", Some("by_args")),
        (r#"SELECT awa.enqueue('k', uniqueness => '{"states": ["canceled"]}')"#, "22023", Some("cancelled")),
        ("SELECT awa.enqueue('k', on_conflict => 'skipp')", "22023", Some("skip")),
        ("SELECT awa.enqueue_batch('[]', 'Error')", "22023", Some("error")),
        ("SELECT awa.enqueue_csv(E'kind,prio\\nk,1\\n')", "22P04", Some("priority")),
        ("SELECT awa.enqueue_csv(E'Kind\\nk\\n')", "22P04", Some("kind")),
        ("SELECT awa.enqueue_csv('k', columns => '{kinds}', header => false)", "22023", Some("kind")),
        ("CREATE FOREIGN TABLE t (kind text) SERVER awa_ingest OPTIONS (queu 'q')", "HV00D", Some("queue")),
    ];
    for (sql, sqlstate, meant) in cases {
        let refused = failure(client.batch_execute(sql).await);
        assert_eq!(refused.sqlstate, sqlstate, "{sql}: {refused:?}");
        match meant {
            Some(meant) => assert!(refused.hint.starts_with(&format!("Did you mean \"{meant}\"?")), "{sql}: {refused:?}"),
            None => assert!(!refused.hint.is_empty() && !refused.hint.contains("Did you mean"), "{sql}: {refused:?}"),
        }
    }
}
