//! CSV by `awa.enqueue_csv`, as spreadsheets, scripts and awa's clients write it: all of it is taken for what it means.

use awa_ingest_tests::jobs::Enqueued;
use awa_ingest_tests::{Db, Storage, assert_nothing_stored, assert_same_rows, rows};
use serde_json::{Value, json};
use tokio_postgres::{Client, Error};

async fn enqueue(client: &Client, csv: &[u8], arguments: &str) -> Result<Vec<Enqueued>, Error> {
    let call = format!("SELECT * FROM awa.enqueue_csv($1::bytea{arguments})");
    Ok(client.query(&call, &[&csv]).await?.into_iter().map(Enqueued::from).collect())
}

/// Kinds and queues of all jobs, in the order of their ids.
async fn kinds_and_queues(client: &Client, storage: Storage) -> Vec<(String, String)> {
    let sql = format!("SELECT kind, queue FROM {} ORDER BY job_id", storage.table("ready_entries"));
    client.query(&sql, &[]).await.expect(&sql).iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// CSV, further arguments, and the kinds and queues that are meant.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const AB: &[(&str, &str)] = &[("a", "x"), ("b", "y")];

const CASES: [Case; 48] = [
    // Line endings.
    ("kind,queue\na,x\nb,y\n", "", AB),
    ("kind,queue\r\na,x\r\nb,y\r\n", "", AB),
    ("kind,queue\ra,x\rb,y\r", "", AB),
    ("kind,queue\r\na,x\nb,y\r", "", AB),
    ("kind,queue\na,x\nb,y", "", AB),
    ("kind,queue\ra,x\rb,\"y\"", "", AB),
    ("kind,queue\n\n\na,x\n\n\r\nb,y\n\n", "", AB),
    ("\n\nkind,queue\na,x\nb,y\n", "", AB),
    // Quotes.
    ("\"kind\",\"queue\"\n\"a\",\"x\"\n\"b\",\"y\"\n", "", AB),
    ("kind,queue\n\"a\"\"b\",\"\"\"\"\n", "", &[("a\"b", "\"")]),
    ("kind,queue\n\"a\nb\",\"x\r\ny\"\n\"c\rd\",\"\n\"\n", "", &[("a\nb", "x\r\ny"), ("c\rd", "\n")]),
    ("kind,queue\n\"a,b\",\",\"\n", "", &[("a,b", ",")]),
    ("kind,queue\n a , x \n", "", &[(" a ", " x ")]),
    ("kind,queue\n'a','x'\n", "", &[("'a'", "'x'")]),
    ("kind,queue\na\\,\\\"\n", "", &[]),
    ("kind,queue\na\\,\\n\n\\.,\\N\n", "", &[("a\\", "\\n"), ("\\.", "\\N")]),
    // Byte order marks.
    ("\u{feff}kind,queue\na,x\nb,y\n", "", AB),
    ("\u{feff}\"kind\",queue\r\na,x\r\nb,y\r\n", "", AB),
    ("\u{feff}a,x\nb,y\n", ", header => false, columns => '{kind,queue}'", AB),
    ("\u{feff}\"a\",x\nb,y\n", ", header => false, columns => '{kind,queue}'", AB),
    ("kind,queue\na\u{feff},x\u{feff}\n", "", &[("a\u{feff}", "x\u{feff}")]),
    // Delimiters.
    ("kind;queue\na;x\nb;y\n", ", delimiter => ';'", AB),
    ("kind\tqueue\na\tx\nb\ty\n", ", delimiter => E'\\t'", AB),
    ("kind|queue\n\"a|\"|x,y\n", ", delimiter => '|'", &[("a|", "x,y")]),
    ("kind queue\na x\nb y\n", ", delimiter => ' '", AB),
    ("kind\u{1}queue\na\u{1}x\nb\u{1}y\n", ", delimiter => E'\\x01'", AB),
    // Null strings.
    ("kind,queue\na,__AWA_NULL__\nb,\"__AWA_NULL__\"\n", "", &[("a", "default"), ("b", "__AWA_NULL__")]),
    ("kind,queue\na,__AWA_NULL__ \nb,__awa_null__\n", "", &[("a", "__AWA_NULL__ "), ("b", "__awa_null__")]),
    ("kind,queue\na,\nb,\" \"\n", ", null_string => ''", &[("a", "default"), ("b", " ")]),
    ("kind,queue\na,\\N\nb,\"\\N\"\n", ", null_string => '\\N'", &[("a", "default"), ("b", "\\N")]),
    ("kind,queue\na,NULL\nb,null\n", ", null_string => 'NULL'", &[("a", "default"), ("b", "null")]),
    ("kind,queue\na,__AWA_NULL__\n", ", null_string => '-'", &[("a", "__AWA_NULL__")]),
    ("kind,queue\na,n\u{fc}ll\n", ", null_string => 'n\u{fc}ll'", &[("a", "default")]),
    ("kind,queue\na,__AWA_NULL__\n", ", null_string => NULL, delimiter => NULL, header => NULL", &[("a", "default")]),
    // Names of columns.
    ("queue,kind\nx,a\ny,b\n", "", AB),
    ("kind\na\nb\n", "", &[("a", "default"), ("b", "default")]),
    ("x,a\ny,b\n", ", header => false, columns => '{queue,kind}'", AB),
    ("any,thing\nx,a\ny,b\n", ", columns => '{queue,kind}'", AB),
    ("one field only\nx,a\ny,b\n", ", columns => '{queue,kind}'", AB),
    ("kind,queue\nx,a\n", ", header => false, columns => '{queue,kind}'", &[("queue", "kind"), ("a", "x")]),
    ("\"a\nheader\",of,two lines\nx,a\n", ", columns => '{queue,kind}'", &[("a", "x")]),
    ("a,x,1,available,1,1,yesterday,{},{},\\x01,11111111,\\x02\n", ", header => false", &[("a", "x")]),
    // Nothing to do.
    ("", "", &[]),
    ("\u{feff}", "", &[]),
    ("\n\r\n\r", "", &[]),
    ("kind,queue", "", &[]),
    ("kind,queue\r\n", "", &[]),
    ("", ", header => false", &[]),
];

#[tokio::test(flavor = "multi_thread")]
async fn csv_is_taken_for_what_it_means() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for (csv, arguments, expected) in CASES {
            client.batch_execute("BEGIN").await.unwrap();
            let answer = enqueue(&client, csv.as_bytes(), arguments).await;
            if csv.contains("\\\"") {
                // A backslash escapes nothing, and a quote within a field is an error.
                assert!(answer.is_err(), "{csv:?}");
                client.batch_execute("ROLLBACK").await.unwrap();
                continue;
            }
            let answer = answer.unwrap_or_else(|error| panic!("{csv:?}{arguments}: {error:?}"));
            assert_eq!(answer.iter().map(|row| row.ord).collect::<Vec<_>>(), (1..=expected.len() as i64).collect::<Vec<_>>());
            let found = kinds_and_queues(&client, storage).await;
            let found: Vec<(&str, &str)> = found.iter().map(|(kind, queue)| (kind.as_str(), queue.as_str())).collect();
            assert_eq!(found, expected, "{csv:?}{arguments}, {storage:?}");
            client.batch_execute("ROLLBACK").await.unwrap();

            client.batch_execute("BEGIN").await.unwrap();
            let call = format!("SELECT * FROM awa.enqueue_csv($1::text{arguments})");
            assert_eq!(client.query(&call, &[&csv]).await.expect("as text").len(), expected.len(), "{csv:?}");
            assert_eq!(kinds_and_queues(&client, storage).await.len(), expected.len());
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn null_is_no_csv() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for call in ["SELECT * FROM awa.enqueue_csv(NULL::bytea)", "SELECT * FROM awa.enqueue_csv(NULL::text, 'skip')"] {
            assert!(client.query(call, &[]).await.expect(call).is_empty());
        }
        assert_nothing_stored(&client, storage, "NULL").await;
    }
}

/// Every column, and the notations that each may have.
#[tokio::test(flavor = "multi_thread")]
async fn every_column() {
    let csv = r#"kind,args,priority,max_attempts,metadata,tags,unique_key,unique_states,ordering_key,uniqueness,state
a,"{""n"": [1, null, ""\u00e9""]}", 1 ,+7,"{""m"": 1}","{x,""y z"",""NULL""}",\x00ff,01000000,\x6b,__AWA_NULL__,available
b,[],4,1000,{},"[""x"", ""\\"", """"]",\x5C00ab,__AWA_NULL__,k,false,__AWA_NULL__
c,null,__AWA_NULL__,__AWA_NULL__,__AWA_NULL__,{},__AWA_NULL__,__AWA_NULL__,__AWA_NULL__,"{""by_args"": false}",available
d,1e2,2,25,{},[],__AWA_NULL__,__AWA_NULL__,__AWA_NULL__,null,available
"#;
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        assert_eq!(enqueue(&client, csv.as_bytes(), "").await.expect("valid").len(), 4);
        let stored = format!(
            "(SELECT kind, args, priority, max_attempts, payload, unique_states, unique_key IN ('\\x00ff', '\\x5c00ab') AS given,
                unique_key IS NULL AS unkeyed FROM {})",
            storage.table("ready_entries")
        );
        let expected = [
            json!({"kind": "a", "args": {"n": [1, null, "é"]}, "priority": 1, "max_attempts": 7, "unique_states": "01000000",
                   "payload": {"metadata": {"m": 1}, "tags": ["x", "y z", "NULL"]}, "given": true, "unkeyed": false}),
            json!({"kind": "b", "args": [], "priority": 4, "max_attempts": 1000, "unique_states": null,
                   "payload": {"tags": ["x", "\\", ""]}, "given": true, "unkeyed": false}),
            json!({"kind": "c", "args": null, "priority": 2, "max_attempts": 25, "unique_states": "11111000", "payload": null,
                   "given": false, "unkeyed": false}),
            json!({"kind": "d", "args": 100, "priority": 2, "max_attempts": 25, "unique_states": null, "payload": null,
                   "given": null, "unkeyed": true}),
        ];
        assert_same_rows(&format!("{storage:?}"), &expected, &rows(&client, &stored, &[]).await);
    }
}

/// Times are read as `timestamptz` reads them in the same session.
#[tokio::test(flavor = "multi_thread")]
async fn times_are_those_of_the_session() {
    let times = [
        "2030-01-02",
        "2030-07-02 03:04 Europe/Berlin",
        "02/01/2030 03:04",
        "epoch",
        "infinity",
        "0044-03-15 BC",
        " 2030-01-02T03:04Z ",
    ];
    for session in ["SET timezone = 'UTC'", "SET timezone = 'America/St_Johns'; SET datestyle = 'SQL, DMY'"] {
        let client = Db::embedded().await.connect().await;
        client.batch_execute(session).await.unwrap();
        let csv: String = "kind,run_at\n".to_owned() + &times.map(|time| format!("{time},{time}\n")).concat();
        assert_eq!(enqueue(&client, csv.as_bytes(), "").await.expect(session).len(), times.len());
        let same = "(SELECT FROM awa_ingest.deferred_jobs WHERE run_at = kind::timestamptz)";
        assert_eq!(rows(&client, same, &[]).await.len(), times.len(), "{session}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_keys_are_skipped_or_not() {
    let csv = "kind,args,uniqueness\nk,1,true\nk,2,true\nk,1,true\nk,3,\n";
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let arguments = ", null_string => '', on_conflict => 'skip'";
        let answer = enqueue(&client, csv.as_bytes(), arguments).await.expect("skipping");
        assert_eq!(answer.iter().map(|row| row.job_id.is_some()).collect::<Vec<_>>(), [true, true, false, true]);
        assert_eq!(answer[2].conflicts_with, answer[0].job_id);
        let again = enqueue(&client, csv.as_bytes(), arguments).await.expect("skipping");
        assert_eq!(
            again.iter().map(|row| row.conflicts_with).collect::<Vec<_>>(),
            [answer[0].job_id, answer[1].job_id, answer[0].job_id, None]
        );
        assert_eq!(kinds_and_queues(&client, storage).await.len(), 4, "{storage:?}");
    }
}

/// As big as a field of a client's can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_field_of_100_megabytes() {
    let client = Db::embedded().await.connect().await;
    let call = r#"SELECT count(job_id) FROM awa.enqueue_csv(convert_to(
        E'kind,args\nsmall,1\nbig,"""' || repeat('0123456789abcde""', 6250000) || E'"""\nlast,2\n', 'UTF8'))"#;
    let escaped = call.replace(r#"abcde"""#, r#"abcde\"""#);
    assert_eq!(client.query_one(&escaped, &[]).await.expect("it is taken").get::<_, i64>(0), 3);
    let length = "(SELECT kind, length(args #>> '{}') AS length FROM awa_ingest.ready_entries)";
    let expected = [
        json!({"kind": "big", "length": 100_000_000}),
        json!({"kind": "last", "length": 1}),
        json!({"kind": "small", "length": 1}),
    ];
    assert_same_rows("jobs", &expected, &rows(&client, length, &[]).await);
    let none: Vec<Value> = rows(&client, "(SELECT FROM awa_ingest.ready_entries WHERE args #>> '{}' LIKE '%\"\"%')", &[]).await;
    assert!(none.is_empty(), "each doubled quote was one");
}
