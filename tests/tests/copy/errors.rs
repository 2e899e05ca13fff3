//! What is wrong with a row is said with its ordinal, its column and, for COPY, its line; and nothing is left.

use awa_ingest_tests::copy::{Format, Row, copy_in, copy_rows, last_summary};
use awa_ingest_tests::{Failure, Storage, assert_nothing_stored, failure, stored_kinds};
use serde_json::{Value, json};
use tokio_postgres::Client;

/// A row that is wrong, and the SQLSTATE, constraint and column of its error.
struct Case {
    row: Row,
    sqlstate: &'static str,
    constraint: &'static str,
    column: &'static str,
}

fn case(sqlstate: &'static str, constraint: &'static str, column: &'static str, change: impl FnOnce(&mut Row)) -> Case {
    let mut row = Row::new("k", json!({}));
    change(&mut row);
    Case { row, sqlstate, constraint, column }
}

/// Errors that the server's input functions do not find: they are the extension's to report.
fn cases() -> Vec<Case> {
    let key = |row: &mut Row| row.unique_key = Some(vec![1]);
    vec![
        case("23502", "", "kind", |row| row.kind = None),
        case("23514", "kind_length", "kind", |row| row.kind = Some(String::new())),
        case("23514", "kind_length", "kind", |row| row.kind = Some("ü".repeat(201))),
        case("23514", "queue_name_length", "queue", |row| row.queue = Some("q".repeat(201))),
        case("23514", "priority_in_range", "priority", |row| row.priority = Some(0)),
        case("23514", "priority_in_range", "priority", |row| row.priority = Some(5)),
        case("23514", "max_attempts_range", "max_attempts", |row| row.max_attempts = Some(0)),
        case("23514", "max_attempts_range", "max_attempts", |row| row.max_attempts = Some(1001)),
        case("23514", "tags_count", "tags", |row| row.tags = Some(vec!["t".to_owned(); 21])),
        case("22023", "", "state", |row| row.state = Some("running".to_owned())),
        case("22023", "", "state", |row| row.state = Some("Available".to_owned())),
        case("22023", "", "metadata", |row| row.metadata = Some(json!([1]))),
        case("22023", "", "uniqueness", |row| row.uniqueness = Some(json!("yes"))),
        case("22023", "", "uniqueness", |row| row.uniqueness = Some(json!({"by_kind": true}))),
        case("22023", "", "uniqueness", |row| row.uniqueness = Some(json!({"states": ["done"]}))),
        case("22023", "", "unique_key", |row| row.unique_key = Some(vec![])),
        case("22023", "", "unique_states", |row| row.unique_states = Some("11111111".to_owned())),
        case("22P02", "", "unique_states", |row| {
            key(row);
            row.unique_states = Some("1111111".to_owned());
        }),
        case("22P02", "", "unique_states", |row| {
            key(row);
            row.unique_states = Some("11111112".to_owned());
        }),
        case("22023", "", "uniqueness", |row| {
            key(row);
            row.uniqueness = Some(json!(true));
        }),
    ]
}

#[track_caller]
fn assert_refused(refused: &Failure, case: &Case, what: &str) {
    let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.column.as_str(), refused.ordinal());
    assert_eq!(found, (case.sqlstate, case.constraint, case.column, Some(3)), "{what}, {:?}: {refused:?}", case.row);
}

/// Two good rows before the bad one, and one behind it.
fn batch(bad: &Row) -> Vec<Row> {
    let good = |kind: &str| Row { uniqueness: Some(json!(true)), ..Row::new(kind, json!({"a": "b\nc"})) };
    vec![good("first"), good("second"), bad.clone(), good("last")]
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_names_the_job_the_line_and_the_column() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for case in cases() {
            for format in Format::ALL {
                for table in ["awa.ingest", "awa.ingest_skip_conflicts"] {
                    let refused = failure(copy_rows(&client, table, format, &batch(&case.row)).await);
                    assert_refused(&refused, &case, &format!("{format:?} into {table}, {storage:?}"));
                    let context = format!("COPY {}, line 3", table.trim_start_matches("awa."));
                    assert!(refused.context.starts_with(&context), "{format:?}: {refused:?}");
                }
            }
        }
        assert_nothing_stored(&client, storage, "refused").await;
        assert_eq!(copy_rows(&client, "awa.ingest", Format::Text, &batch(&Row::new("good", json!(1)))).await.expect("usable"), 4);
    }
}

async fn insert(client: &Client, table: &str, returning: &str, rows: &[Row]) -> Result<u64, tokio_postgres::Error> {
    client.batch_execute("DROP TABLE IF EXISTS source; CREATE TEMP TABLE source (LIKE awa.ingest, line bigserial)").await?;
    copy_rows(client, "source", Format::Text, rows).await?;
    let columns = awa_ingest_tests::copy::COLUMNS.join(", ");
    client.execute(&format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM source ORDER BY line {returning}"), &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn insert_names_the_job_and_the_column() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for case in cases() {
            for (table, returning) in [("awa.ingest", ""), ("awa.ingest_skip_conflicts", "RETURNING job_id")] {
                let refused = failure(insert(&client, table, returning, &batch(&case.row)).await);
                assert_refused(&refused, &case, &format!("{table} {returning}, {storage:?}"));
            }
        }
        assert_nothing_stored(&client, storage, "refused").await;
        assert_eq!(last_summary(&client).await, None, "nothing was enqueued");
        assert_eq!(insert(&client, "awa.ingest", "", &batch(&Row::new("good", json!(1)))).await.expect("usable"), 4);
        assert_eq!(stored_kinds(&client, storage).await, ["first", "second", "good", "last"]);
    }
}

/// Statements with what only they can hold: elements of arrays that are no tags, and times.
#[tokio::test(flavor = "multi_thread")]
async fn odd_arrays_and_times() {
    let cases = [
        ("tags", "'{a,NULL}'", "22023"),
        ("tags", "'{{a,b},{c,d}}'", "22023"),
        ("run_at", "'2030-13-01'", "22008"),
        ("run_at", "'soon'", "22007"),
        ("args", "'{\"a\"'", "22P02"),
        ("args", "'\"\\u0000\"'", "22P05"),
        ("tags", "'{a'", "22P02"),
        ("unique_key", "'\\x0'", "22023"),
        ("priority", "'x'", "22P02"),
        ("priority", "'32768'", "22003"),
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for (column, literal, sqlstate) in cases {
            let insert = format!("INSERT INTO awa.ingest (kind, {column}) VALUES ('k', NULL), ('k', {literal})");
            let refused = failure(client.batch_execute(&insert).await);
            assert_eq!(refused.sqlstate, sqlstate, "{insert}: {refused:?}");
            if literal.contains("{a,") {
                assert_eq!((refused.ordinal(), refused.column.as_str()), (Some(2), "tags"), "{insert}: {refused:?}");
            }
            // COPY has the server's word for values that no type takes, with the line and the column.
            let text = literal.trim_matches('\'').replace('"', "\"\"");
            let copy = format!("COPY awa.ingest (kind, {column}) FROM STDIN WITH (FORMAT csv)");
            let refused = failure(copy_in(&client, &copy, format!("k,\n\"k\n\",\"{text}\"\n")).await);
            assert_eq!(refused.sqlstate, sqlstate, "{copy}: {refused:?}");
            assert!(refused.context.contains("COPY ingest, line 3"), "{copy}: {refused:?}");
        }
        assert_nothing_stored(&client, storage, "refused").await;
    }
}

/// What COPY itself finds wrong with the input: the server's own errors, after good rows.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_input() {
    let good = "k,1\n".repeat(1000);
    let cases: [(&str, &[u8], &str); 8] = [
        ("FORMAT csv", b"k,1,2\n", "22P04"),
        ("FORMAT csv", b"k\n", "22P04"),
        ("FORMAT csv", b"\"k,1\n", "22P04"),
        ("FORMAT csv", b"k\xff,1\n", "22021"),
        ("FORMAT csv", b"k\0,1\n", "22021"),
        ("FORMAT csv", b"k,nonsense\n", "22P02"),
        ("FORMAT text, DELIMITER ','", b"\\.\nk,1\n", ""),
        ("FORMAT binary", b"PGCOPY\n\xff\r\n\0", "22P04"),
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for (options, bytes, sqlstate) in cases {
            let copy = format!("COPY awa.ingest (kind, args) FROM STDIN WITH ({options})");
            let head = if options == "FORMAT binary" { &[] } else { good.as_bytes() };
            let result = copy_in(&client, &copy, [head, bytes].concat()).await;
            if sqlstate.is_empty() {
                assert_eq!(result.expect("an end of data in the text format is one"), 1000);
            } else {
                let refused = failure(result);
                assert_eq!(refused.sqlstate, sqlstate, "{options}, {:?}: {refused:?}", String::from_utf8_lossy(bytes));
            }
        }
        assert_eq!(stored_kinds(&client, storage).await.len(), 1000, "{storage:?}");
    }
}

/// An error in the middle of a transaction takes only its statement, with a savepoint around it.
#[tokio::test(flavor = "multi_thread")]
async fn the_session_goes_on() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("BEGIN; INSERT INTO awa.ingest (kind) VALUES ('kept'); SAVEPOINT s").await.unwrap();
        for case in cases() {
            failure(copy_rows(&client, "awa.ingest", Format::Csv, &batch(&case.row)).await);
            client.batch_execute("ROLLBACK TO s").await.unwrap();
        }
        client.batch_execute("INSERT INTO awa.ingest (kind) VALUES ('too'); COMMIT").await.unwrap();
        assert_eq!(stored_kinds(&client, storage).await, ["kept", "too"], "{storage:?}");
        let values: Vec<Value> = awa_ingest_tests::rows(&client, &storage.table("ready_segments"), &[]).await;
        assert_eq!(values.len(), 2);
    }
}
