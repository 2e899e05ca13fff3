//! Foreign tables whose JSON is text, for drivers that cannot send jsonb.

use awa_ingest_tests::copy::copy_in;
use awa_ingest_tests::{Storage, assert_nothing_stored, failure, rows};
use serde_json::{Value, json};

const TYPES: [&str; 3] = ["text", "json", "varchar(1000)"];

fn table(kind: &str) -> String {
    format!(
        "CREATE FOREIGN TABLE loose (kind text, args {kind}, metadata {kind}, tags {kind}, uniqueness {kind}, job_id bigint) SERVER awa_ingest"
    )
}

/// What jsonb columns take, and the same job.
#[tokio::test(flavor = "multi_thread")]
async fn text_is_read_as_json() {
    for storage in Storage::BOTH {
        for kind in TYPES {
            let client = storage.db().await.connect().await;
            client.batch_execute(&table(kind)).await.unwrap();
            let line = "k\t{\"a\": [1, \"\u{eb}\"]}\t{\"m\": 1}\t[\"x\", \"y\"]\ttrue\nk\t1\t\\N\t\\N\t\\N\n";
            assert_eq!(copy_in(&client, "COPY loose (kind, args, metadata, tags, uniqueness) FROM STDIN", line).await.unwrap(), 2);
            let stored =
                format!("(SELECT kind, args, payload, unique_key IS NOT NULL AS keyed FROM {})", storage.table("ready_entries"));
            let expected = [
                json!({"kind": "k", "args": {"a": [1, "\u{eb}"]}, "payload": {"metadata": {"m": 1}, "tags": ["x", "y"]}, "keyed": true}),
                json!({"kind": "k", "args": 1, "payload": null, "keyed": false}),
            ];
            awa_ingest_tests::assert_same_rows(kind, &expected, &rows(&client, &stored, &[]).await);
            let again = "INSERT INTO loose (kind, args, uniqueness) VALUES ('k', '{ \"a\":[1.0e0,\"\\u00eb\"] }', 'true') ON CONFLICT DO NOTHING";
            assert_eq!(client.execute(again, &[]).await.unwrap(), 1, "known when the statement ends");
            assert_eq!(rows(&client, &stored, &[]).await.len(), 3);
        }
    }
}

/// RETURNING shows text as it was given, and defaults as they are stored.
#[tokio::test]
async fn returning_shows_what_was_given() {
    let client = Storage::Embedded.db().await.connect().await;
    client.batch_execute(&table("text")).await.unwrap();
    let sql =
        "INSERT INTO loose (kind, args, metadata, tags) VALUES ('k', '{ \"b\":1,\"a\":2}', NULL, '{x,y}'), ('k', NULL, '{}', NULL)
        RETURNING args, metadata, tags, job_id";
    let shown: Vec<_> = client.query(sql, &[]).await.unwrap();
    let texts: Vec<[&str; 3]> = shown.iter().map(|row| [row.get(0), row.get(1), row.get(2)]).collect();
    assert_eq!(texts, [["{ \"b\":1,\"a\":2}", "{}", "{x,y}"], ["{}", "{}", "[]"]]);
    assert!(shown.iter().all(|row| row.get::<_, i64>(3) > 0));
}

/// With the codes of the server's own types; the job, the line and the column are named.
#[tokio::test(flavor = "multi_thread")]
async fn bad_text_is_refused() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(&table("text")).await.unwrap();
        let cases = [
            ("args", "{", "22P02"),
            ("args", "", "22P02"),
            ("args", "\"\\\\u0000\"", "22P05"),
            ("metadata", "{\"a\"}", "22P02"),
            ("metadata", "[]", "22023"),
            ("tags", "{x", "22P02"),
            ("tags", "[1]", "22023"),
            ("uniqueness", "yes", "22P02"),
            ("uniqueness", "1", "22023"),
        ];
        for (column, value, sqlstate) in cases {
            let sql = format!("COPY loose (kind, {column}) FROM STDIN");
            let refused = failure(copy_in(&client, &sql, format!("k\t\\N\nk\t{value}\nk\t\\N\n")).await);
            assert_eq!((refused.sqlstate.as_str(), refused.column.as_str()), (sqlstate, column), "{value}: {refused:?}");
            assert!(refused.context.contains("line 2"), "{column} {value}: {refused:?}");
            assert!(refused.ordinal() == Some(2) || refused.context.contains(&format!("job 2, {column}")), "{refused:?}");
        }
        assert_nothing_stored(&client, storage, "refused").await;
        let _: Vec<Value> = rows(&client, &storage.table("ready_entries"), &[]).await;
    }
}
