//! Every limit and every malformed job, through each function it can come in by: SQLSTATE, constraint and ordinal, nothing enqueued,
//! and the caller's transaction usable behind a savepoint.

use awa_ingest_tests::{Db, Failure, Storage, failure, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// A function that takes jobs, fed with a job object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Single,
    Batch,
    Columns,
}
use Way::{Batch, Columns, Single};

const ALL: &[Way] = &[Single, Batch, Columns];
/// What only job objects can say.
const OBJECTS: &[Way] = &[Batch];

impl Way {
    /// Takes the job object `$1`, behind two good jobs where the function takes several.
    fn sql(self) -> &'static str {
        match self {
            Self::Single => {
                "SELECT awa.enqueue(kind => j->>'kind', args => j->'args', queue => j->>'queue', priority => (j->>'priority')::numeric::bigint,
                     max_attempts => (j->>'max_attempts')::bigint, run_at => (j->>'run_at')::timestamptz, metadata => j->'metadata',
                     tags => (SELECT array_agg(t) FROM jsonb_array_elements_text(j->'tags') AS t), uniqueness => j->'unique',
                     ordering_key => j->>'ordering_key') FROM (VALUES ($1::text::jsonb)) AS v (j)"
            }
            Self::Batch => r#"SELECT awa.enqueue_batch('[{"kind": "good", "unique": true}, {"kind": "good"}]' || jsonb_build_array($1::text::jsonb))"#,
            Self::Columns => {
                "SELECT awa.enqueue_columns(kind => ARRAY['good', 'good', j->>'kind'], args => ARRAY[NULL, NULL, j->'args'],
                     queue => ARRAY[NULL, NULL, j->>'queue'], priority => ARRAY[NULL, NULL, (j->>'priority')::smallint],
                     max_attempts => ARRAY[NULL, NULL, (j->>'max_attempts')::smallint], metadata => ARRAY[NULL, NULL, j->'metadata'],
                     tags => ARRAY[NULL, NULL, j->'tags'], unique_key => ARRAY['\x01', NULL, decode(j->>'unique_key', 'hex')],
                     unique_states => ARRAY['01000000', NULL, j->>'unique_states']) FROM (VALUES ($1::text::jsonb)) AS v (j)"
            }
        }
    }

    fn ordinal(self) -> u64 {
        if self == Self::Single { 1 } else { 3 }
    }
}

/// A bad job, its SQLSTATE, the constraint if it has one, and the functions that can be asked for it.
struct Case(Value, &'static str, &'static str, &'static [Way]);

fn limits() -> Vec<Case> {
    vec![
        Case(json!({}), "23502", "", ALL),
        Case(json!({"kind": null}), "23502", "", ALL),
        Case(json!({"kind": ""}), "23514", "kind_length", ALL),
        Case(json!({"kind": "k".repeat(201)}), "23514", "kind_length", ALL),
        Case(json!({"kind": "🐘".repeat(201)}), "23514", "kind_length", ALL),
        Case(json!({"kind": "k", "queue": "q".repeat(201)}), "23514", "queue_name_length", ALL),
        Case(json!({"kind": "k", "queue": "🐘".repeat(201)}), "23514", "queue_name_length", ALL),
        Case(json!({"kind": "k", "priority": 0}), "23514", "priority_in_range", ALL),
        Case(json!({"kind": "k", "priority": 5}), "23514", "priority_in_range", ALL),
        Case(json!({"kind": "k", "priority": -32768}), "23514", "priority_in_range", ALL),
        Case(json!({"kind": "k", "priority": 65537}), "23514", "priority_in_range", OBJECTS),
        Case(json!({"kind": "k", "priority": i64::MIN}), "23514", "priority_in_range", OBJECTS),
        Case(serde_json::from_str(r#"{"kind": "k", "priority": 1e30}"#).unwrap(), "23514", "priority_in_range", OBJECTS),
        Case(json!({"kind": "k", "max_attempts": 0}), "23514", "max_attempts_range", ALL),
        Case(json!({"kind": "k", "max_attempts": -1}), "23514", "max_attempts_range", ALL),
        Case(json!({"kind": "k", "max_attempts": 1001}), "23514", "max_attempts_range", ALL),
        Case(json!({"kind": "k", "max_attempts": 65561}), "23514", "max_attempts_range", OBJECTS),
        Case(json!({"kind": "k", "tags": vec!["t"; 21]}), "23514", "tags_count", ALL),
    ]
}

fn malformed() -> Vec<Case> {
    const JSON_TAGS: &[Way] = &[Batch, Columns];
    const KEYED: &[Way] = &[Single, Batch];
    let field = |name: &str, value: Value| {
        let mut job = json!({"kind": "k"});
        job[name] = value;
        job
    };
    let mut cases = vec![
        Case(json!({"kind": "k", "prioritee": 1}), "22023", "", OBJECTS),
        Case(json!({"kind": "k", "Kind": "k"}), "22023", "", OBJECTS),
        Case(json!({"kind": "k", "": 1}), "22023", "", OBJECTS),
        Case(field("metadata", json!([])), "22023", "", ALL),
        Case(field("metadata", json!("m")), "22023", "", ALL),
        Case(field("metadata", json!(1)), "22023", "", ALL),
        Case(field("tags", json!([1])), "22023", "", JSON_TAGS),
        Case(field("tags", json!(["a", null])), "22023", "", ALL),
        Case(field("tags", json!({"a": 1})), "22023", "", JSON_TAGS),
        Case(field("tags", json!("a")), "22023", "", JSON_TAGS),
        Case(field("ordering_key", json!("\\xzz")), "22P02", "", KEYED),
        Case(field("ordering_key", json!("\\xabc")), "22P02", "", KEYED),
        Case(json!({"kind": "k", "unique_states": "01000000"}), "22023", "", JSON_TAGS),
        Case(json!({"kind": "k", "unique_key": "", "unique_states": "01000000"}), "22023", "", JSON_TAGS),
    ];
    for (name, wrong) in
        [("kind", json!(1)), ("kind", json!({})), ("queue", json!(["q"])), ("queue", json!(true)), ("state", json!(1))]
    {
        cases.push(Case(field(name, wrong), "22023", "", OBJECTS));
    }
    for wrong in [json!("1"), json!(1.5), json!(true), json!([1])] {
        cases.push(Case(field("priority", wrong.clone()), "22023", "", OBJECTS));
        cases.push(Case(field("max_attempts", wrong), "22023", "", OBJECTS));
    }
    for state in ["running", "completed", "failed", "cancelled", "waiting_external", "Available", "", "nonsense"] {
        cases.push(Case(field("state", json!(state)), "22023", "", OBJECTS));
    }
    for wrong in [json!(5), json!({}), json!(false)] {
        cases.push(Case(field("run_at", wrong.clone()), "22023", "", OBJECTS));
        cases.push(Case(field("ordering_key", wrong), "22023", "", OBJECTS));
    }
    for text in [
        "",
        "soon-ish",
        "2030-13-45",
        "2030-02-30",
        "25:99",
        "294277-01-01",
        "4714-11-23 BC",
        "2030-01-01 00:00 Mars/Base",
        "2030-01-01 00:00+99",
        "2030-01-01'; SELECT 1",
        "99999999999999999999",
    ] {
        cases.push(Case(field("run_at", json!(text)), "22007", "", OBJECTS));
    }
    for not_a_job in [json!(1), json!("{}"), json!(null), json!([]), json!([{"kind": "k"}]), json!(true)] {
        cases.push(Case(not_a_job, "22023", "", OBJECTS));
    }
    cases
}

fn uniqueness() -> Vec<Case> {
    const OPTIONS: &[Way] = &[Single, Batch];
    const BITS: &[Way] = &[Batch, Columns];
    let unique = |value: Value| json!({"kind": "k", "unique": value});
    let mut cases: Vec<Case> = [
        json!("yes"),
        json!(1),
        json!([]),
        json!({"by_query": true}),
        json!({"by_queue": "yes"}),
        json!({"by_args": 1}),
        json!({"by_period": "1"}),
        json!({"by_period": 1.5}),
        json!({"by_period": u64::MAX}),
        json!({"states": "running"}),
        json!({"states": ["done"]}),
        json!({"states": [1]}),
        json!({"states": {"running": true}}),
        json!({"unique_states": "01000000"}),
        json!({"unique_key": 1}),
        json!({"unique_key": "ab", "by_args": true}),
        json!({"unique_key": ""}),
    ]
    .into_iter()
    .map(|options| Case(unique(options), "22023", "", OPTIONS))
    .collect();
    cases.extend([
        Case(unique(json!({"unique_key": "xyz"})), "22P02", "", OPTIONS),
        Case(unique(json!({"unique_key": "ab", "unique_states": "0100000"})), "22P02", "", OPTIONS),
        Case(json!({"kind": "k", "unique": true, "unique_key": "ab"}), "22023", "", OBJECTS),
        Case(json!({"kind": "k", "unique_key": "abc"}), "22P02", "", OBJECTS),
        Case(json!({"kind": "k", "unique_key": "zz"}), "22P02", "", OBJECTS),
        Case(json!({"kind": "k", "unique_key": 7}), "22023", "", OBJECTS),
        Case(json!({"kind": "k", "unique_key": "ab", "unique_states": 1}), "22023", "", OBJECTS),
    ]);
    for bits in ["", "0100000", "010000000", "0100000x", "01 00000", "0100000é"] {
        cases.push(Case(json!({"kind": "k", "unique_key": "ab", "unique_states": bits}), "22P02", "", BITS));
    }
    cases
}

#[track_caller]
fn assert_names_job(refused: &Failure, case: &str, way: Way, sqlstate: &str, constraint: &str) {
    let found = (refused.sqlstate.as_str(), refused.constraint.as_str());
    assert_eq!(found, (sqlstate, constraint), "{case} by {way:?}: {refused:?}");
    assert_eq!(refused.ordinal(), Some(way.ordinal()), "{case} by {way:?}: {refused:?}");
    assert!(is_column_of(&refused.column, case), "{case} by {way:?}: column {}", refused.column);
}

/// Whether an error about `case` names this column: the one key beside `kind` that the job has, or `kind` itself. What makes a job
/// unique has three columns.
fn is_column_of(column: &str, case: &str) -> bool {
    let job = match serde_json::from_str(case) {
        Ok(Value::Object(job)) => job,
        Ok(_) => return column.is_empty(),
        // Numbers that serde_json does not read, in the arguments.
        Err(_) => return column == "args",
    };
    let known = ["kind", "queue", "args", "state", "priority", "max_attempts", "run_at", "metadata", "tags", "ordering_key"];
    match job.keys().find(|key| *key != "kind").map_or("kind", String::as_str) {
        key if key.starts_with("unique") => ["uniqueness", "unique_key", "unique_states"].contains(&column),
        key if known.contains(&key) => column == key,
        _ => column.is_empty(),
    }
}

async fn assert_all_refused(cases: Vec<Case>) {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("BEGIN").await.unwrap();
        for Case(job, sqlstate, constraint, ways) in &cases {
            let job = job.to_string();
            for way in *ways {
                let refused = refused_in_savepoint(&client, way.sql(), &job).await;
                assert_names_job(&refused, &job, *way, sqlstate, constraint);
            }
        }
        client.batch_execute("COMMIT").await.unwrap();
        assert_nothing_enqueued(&client, storage).await;
        client.execute("SELECT awa.enqueue('k')", &[]).await.expect("a usable session");
    }
}

async fn refused_in_savepoint(client: &Client, sql: &str, argument: &str) -> Failure {
    client.batch_execute("SAVEPOINT s").await.expect("a usable transaction");
    let Err(error) = client.execute(sql, &[&argument]).await else { panic!("{argument} was taken by {sql}") };
    client.batch_execute("ROLLBACK TO s").await.expect("a usable session");
    error.into()
}

async fn assert_nothing_enqueued(client: &Client, storage: Storage) {
    for table in ["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims", "queue_lanes"] {
        assert_eq!(rows(client, &storage.table(table), &[]).await, Vec::<Value>::new(), "{table}, {storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_check_violations() {
    assert_all_refused(limits()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_jobs_are_refused() {
    assert_all_refused(malformed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_uniqueness_is_refused() {
    assert_all_refused(uniqueness()).await;
}

/// Just inside of every limit.
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_inclusive() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let names = [("k".repeat(200), "q".repeat(200)), ("🐘".repeat(200), "ü".repeat(200)), ("k".into(), String::new())];
        let numbers = [(1, 1), (4, 1000), (2, 25)];
        for ((kind, queue), (priority, max_attempts)) in names.into_iter().zip(numbers) {
            let job =
                json!({"kind": kind, "queue": queue, "priority": priority, "max_attempts": max_attempts, "tags": vec!["t"; 20]});
            for way in ALL {
                client
                    .execute(way.sql(), &[&job.to_string()])
                    .await
                    .unwrap_or_else(|error| panic!("{way:?}, {storage:?}: {error:?}"));
            }
            let stored = format!(
                "(SELECT FROM {} WHERE kind = '{kind}' AND queue = '{queue}' AND priority = {priority}
                AND max_attempts = {max_attempts} AND jsonb_array_length(payload->'tags') = 20)",
                storage.table("ready_entries")
            );
            assert_eq!(rows(&client, &stored, &[]).await.len(), 3, "{storage:?}");
            client.batch_execute(&format!("DELETE FROM {}", storage.table("job_unique_claims"))).await.unwrap();
        }
    }
}

/// What is wrong with a request as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_refused() {
    let requests = [
        ("SELECT awa.enqueue_batch('null')", "22023"),
        ("SELECT awa.enqueue_batch('{}')", "22023"),
        (r#"SELECT awa.enqueue_batch('{"kind": "k"}')"#, "22023"),
        ("SELECT awa.enqueue_batch('1')", "22023"),
        (r#"SELECT awa.enqueue_batch('"[]"')"#, "22023"),
        ("SELECT awa.enqueue_batch('[]', 'ignore')", "22023"),
        ("SELECT awa.enqueue_batch('[]', 'ERROR')", "22023"),
        ("SELECT awa.enqueue_batch('[]', '')", "22023"),
        ("SELECT awa.enqueue_columns('{k}', on_conflict => 'skip ')", "22023"),
        ("SELECT awa.enqueue_batch('[{]')", "22P02"),
        (r#"SELECT awa.enqueue_batch('[{"kind": "a\u0000b"}]')"#, "22P05"),
        ("SELECT awa.enqueue_columns('{a,b}', '{1,2,3}'::jsonb[])", "22023"),
        ("SELECT awa.enqueue_columns('{a,b,c}', priority => '{1,2}')", "22023"),
        ("SELECT awa.enqueue_columns('{}', priority => '{1,2}')", "22023"),
        ("SELECT awa.enqueue_columns('{a,b}', run_at => '{}')", "22023"),
        ("SELECT awa.enqueue_columns('{{a,b},{c,d}}')", "22023"),
        ("SELECT awa.enqueue_columns('{a,b}', ordering_key => ARRAY[ARRAY['x', 'y']]::bytea[])", "22023"),
        ("SELECT awa.enqueue('k', max_attempts => 32768::smallint)", "22003"),
        ("SELECT awa.enqueue('k', priority => 1.5)", "42883"),
        ("SELECT awa.enqueue('k', uniqueness => 1)", "42804"),
        ("SELECT awa.enqueue_columns('{k}', ARRAY[1])", "42804"),
        ("SELECT awa.enqueue('k', on_conflict => 'ignore')", "22023"),
        ("SELECT awa.enqueue()", "42883"),
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for (request, sqlstate) in requests {
            let refused = failure(client.execute(request, &[]).await);
            assert_eq!(refused.sqlstate, sqlstate, "{request}, {storage:?}: {refused:?}");
            assert!(sqlstate != "22023" || refused.ordinal().is_none(), "no job is to blame: {refused:?}");
        }
        assert_nothing_enqueued(&client, storage).await;
    }
}

/// An array that does not fit is named.
#[tokio::test(flavor = "multi_thread")]
async fn array_errors_name_the_array() {
    let client = Db::embedded().await.connect().await;
    let arrays = [
        ("args", "jsonb", "1"),
        ("queue", "text", "q"),
        ("priority", "smallint", "1"),
        ("max_attempts", "smallint", "1"),
        ("run_at", "timestamptz", "now"),
        ("metadata", "jsonb", "{}"),
        ("tags", "jsonb", "[]"),
        ("unique_key", "bytea", "x"),
        ("unique_states", "text", "01000000"),
        ("ordering_key", "bytea", "x"),
    ];
    for (name, kind, element) in arrays {
        let wrong = [
            format!("array_fill('{element}'::{kind}, ARRAY[2])"),
            format!("array_fill('{element}'::{kind}, ARRAY[4])"),
            format!("array_fill('{element}'::{kind}, ARRAY[3, 1])"),
        ];
        for array in wrong {
            let refused =
                failure(client.execute(&format!("SELECT awa.enqueue_columns('{{a,b,c}}', {name} => {array})"), &[]).await);
            assert_eq!(refused.sqlstate, "22023", "{array}: {refused:?}");
            // Which of two arrays of different length is the odd one, nobody can tell.
            let named = refused.message.contains(&format!("\"{name}\"")) || refused.message.contains("\"kind\"");
            assert!(named, "{name} => {array}: {refused:?}");
        }
    }
}

/// A double cannot hold the number, so that awa's clients have no key for it. Without a key the embedded storage takes it as it is;
/// what awa's workers are to read is refused either way.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_beyond_double_have_no_key() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for number in ["1e400", "-1e309", "123456789012345678901234567890e300"] {
            let unique = format!(r#"{{"kind": "k", "args": {{"n": [{number}]}}, "unique": true}}"#);
            let plain = unique.replace("true", "false");
            // The key does not cover args.
            let by_kind = unique.replace("true", r#"{"by_args": false}"#).replace(r#""k""#, &format!("\"{number}\""));
            for way in [Single, Batch] {
                assert_number_refused(&client, way, &unique).await;
            }
            for (way, job) in ALL.iter().map(|way| (*way, &plain)).chain([(Single, &by_kind)]) {
                match storage {
                    Storage::Attached => assert_number_refused(&client, way, job).await,
                    Storage::Embedded => {
                        client.execute(way.sql(), &[job]).await.unwrap_or_else(|error| panic!("{job} by {way:?}: {error:?}"));
                    }
                }
            }
            let taken = if storage == Storage::Embedded { 4 } else { 0 };
            let stored = format!("(SELECT FROM {} WHERE args = '{{\"n\": [{number}]}}')", storage.table("ready_entries"));
            assert_eq!(rows(&client, &stored, &[]).await.len(), taken, "{number}, {storage:?}");
            client.batch_execute(&format!("DELETE FROM {}", storage.table("job_unique_claims"))).await.unwrap();
        }
    }
}

async fn assert_number_refused(client: &Client, way: Way, job: &str) {
    let refused = failure(client.execute(way.sql(), &[&job]).await);
    assert_names_job(&refused, job, way, "22003", "");
    assert!(!refused.hint.is_empty(), "{refused:?}");
}
