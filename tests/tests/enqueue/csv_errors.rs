//! What `awa.enqueue_csv` refuses: SQLSTATE, line, column and job are those of the mistake, nothing is enqueued, and the session goes on.

use awa_ingest_tests::{Failure, Storage, assert_nothing_stored, backend_pid, failure, stored_kinds};
use tokio_postgres::{Client, Error, Row};

/// Something wrong with CSV: the input, further arguments, and where the mistake is.
struct Case {
    csv: Vec<u8>,
    arguments: &'static str,
    sqlstate: &'static str,
    line: u32,
    column: &'static str,
    job: u32,
}

fn case(csv: impl Into<Vec<u8>>, sqlstate: &'static str, line: u32, column: &'static str, job: u32) -> Case {
    Case { csv: csv.into(), arguments: "", sqlstate, line, column, job }
}

fn with(arguments: &'static str, case: Case) -> Case {
    Case { arguments, ..case }
}

async fn enqueue(client: &Client, csv: &[u8], arguments: &str) -> Result<Vec<Row>, Error> {
    client.query(&format!("SELECT * FROM awa.enqueue_csv($1::bytea{arguments})"), &[&csv]).await
}

/// Asserts on the line and, where there is one, the column and the job. Job 0 is the header.
#[track_caller]
fn assert_place(refused: &Failure, case: &Case) {
    let what = || format!("{:.200}{}: {refused:?}", String::from_utf8_lossy(&case.csv), case.arguments);
    let column = if case.column.is_empty() { String::new() } else { format!(", column {}", case.column) };
    let place = format!("CSV line {}{column}", case.line);
    let lines: Vec<&str> = refused.context.lines().filter_map(|line| line.find("CSV line").map(|at| &line[at..])).collect();
    assert_eq!((refused.sqlstate.as_str(), lines), (case.sqlstate, vec![place.as_str()]), "{}", what());
    assert_eq!(refused.column, case.column, "{}", what());
    let job = format!("job {}", case.job);
    // The server's words for a value stay as they are, and the context names the job.
    let is_named = refused.message.starts_with(&format!("{job}: ")) || refused.context.contains(&format!("{job}, CSV line"));
    assert_eq!(is_named, case.job > 0, "{}", what());
}

/// Each case after a good call, whose job is taken back: nothing else may be there, and the backend is the same to the end.
async fn assert_refused(cases: Vec<Case>) {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let pid = backend_pid(&client).await;
        for case in &cases {
            let refused = failure(enqueue(&client, &case.csv, case.arguments).await);
            assert_place(&refused, case);
            assert_nothing_stored(&client, storage, &refused.message).await;
        }
        enqueue(&client, b"kind\ngood\n", "").await.expect("a usable session");
        assert_eq!(stored_kinds(&client, storage).await, ["good"]);
        assert_eq!(backend_pid(&client).await, pid);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers() {
    let columns = ", columns => '{kind,queue}'";
    assert_refused(vec![
        case("kind,colour\na,b\n", "22P04", 1, "", 0),
        case("Kind\na\n", "22P04", 1, "", 0),
        case(" kind\na\n", "22P04", 1, "", 0),
        case("kind,\na,\n", "22P04", 1, "", 0),
        case("kind,job_id\na,1\n", "22P04", 1, "", 0),
        case("kind,queue,kind\na,b,c\n", "22P04", 1, "kind", 0),
        case("\n\r\nkind,colour\na,b\n", "22P04", 3, "", 0),
        case("\"kind\n\",queue\na,b\n", "22P04", 1, "", 0),
        case("\"kind\na,b\n", "22P04", 1, "", 0),
        case("ki\"nd\na\n", "22P04", 1, "", 0),
        case("\"kind\"x\na\n", "22P04", 1, "", 0),
        case(b"kind,qu\0eue\na,b\n", "22021", 1, "", 0),
        case(b"kind,qu\xffeue\na,b\n", "22021", 1, "", 0),
        case(
            "kind,queue,args,state,priority,max_attempts,run_at,metadata,tags,unique_key,unique_states,ordering_key,uniqueness,x\n",
            "22P04",
            1,
            "",
            0,
        ),
        case("no kind\na\n", "22P04", 1, "", 0),
        // Without names in the header it still has to be a line of CSV.
        with(columns, case("\"a header\na,b\n", "22P04", 1, "", 0)),
        with(columns, case(b"\xff\na,b\n", "22021", 1, "", 0)),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_no_csv() {
    let bare = ", header => false, columns => '{kind,queue}'";
    assert_refused(vec![
        // Wrong numbers of fields.
        case("kind,queue\na,x\nb\n", "22P04", 3, "", 2),
        case("kind,queue\na,x\nb,y,z\n", "22P04", 3, "", 2),
        case("kind,queue\na,x\nb,y,\n", "22P04", 3, "", 2),
        case("kind,queue\r\na,x\r\n\r\n\r\nb\r\n", "22P04", 5, "", 2),
        case("kind,queue\ra,x\rb\r", "22P04", 3, "", 2),
        case("kind,queue\n\"a\nb\",x\n\"c\nd\"\n", "22P04", 4, "", 2),
        case("kind,queue\na;x\n", "22P04", 2, "", 1),
        with(bare, case("a,x\nb\n", "22P04", 2, "", 2)),
        with(", header => false", case("a,b\n", "22P04", 1, "", 1)),
        // Quotes.
        case("kind,queue\na,x\nb,\"y\nz\n", "22P04", 3, "queue", 2),
        case("kind,queue\na,\"\n", "22P04", 2, "queue", 1),
        case("kind,queue\na,\"x\"\"\n", "22P04", 2, "queue", 1),
        case("kind,queue\na,x\"y\n", "22P04", 2, "queue", 1),
        case("kind,queue\n \"a\",x\n", "22P04", 2, "kind", 1),
        case("kind,queue\n\"a\" ,x\n", "22P04", 2, "kind", 1),
        case("kind,queue\n\"a\nb\"c,x\n", "22P04", 2, "kind", 1),
        case("kind,queue\n\"a\nb\",\"x\"y\n", "22P04", 3, "queue", 1),
        // Bytes.
        case(b"kind,queue\na,x\nb,y\0\n", "22021", 3, "queue", 2),
        case(b"kind,queue\na,x\n\"b\r\n\",\"y\0\"\n", "22021", 4, "queue", 2),
        case(b"kind,queue\na,x\n\xc3,y\n", "22021", 3, "kind", 2),
        case(b"kind,queue\na,\xf0\x9f\x90\n", "22021", 2, "queue", 1),
        case(b"kind,queue\na,\xed\xa0\x80\n", "22021", 2, "queue", 1),
        case(b"kind,queue\na,\xc0\x80\n", "22021", 2, "queue", 1),
        case(b"k\0", "22021", 1, "", 0),
        case(b"\xff\xfek\0i\0n\0d\0\n\0", "22021", 1, "", 0),
    ])
    .await;
}

/// Values that are nothing, or nothing that a job may have.
fn bad_values() -> Vec<(&'static str, String, &'static str)> {
    let text = str::to_owned;
    vec![
        ("args", text("{"), "22P02"),
        ("args", text(""), "22P02"),
        ("args", text("{'a': 1}"), "22P02"),
        ("args", text(r#""\u0000""#), "22P05"),
        ("args", text(r#"{"a": ["\u0000"]}"#), "22P05"),
        ("metadata", text("{]"), "22P02"),
        ("metadata", text("[]"), "22023"),
        ("metadata", text("1"), "22023"),
        ("uniqueness", text("yes"), "22P02"),
        ("uniqueness", text("[]"), "22023"),
        ("uniqueness", text(r#"{"by_kind": true}"#), "22023"),
        ("tags", text("{a"), "22P02"),
        ("tags", text("a,b"), "22P02"),
        ("tags", text("{a,NULL}"), "22023"),
        ("tags", text("{{a},{b}}"), "22023"),
        ("tags", text("[\"a\""), "22P02"),
        ("tags", text("[1]"), "22023"),
        ("tags", format!("[{}]", ["\"t\""; 21].join(",")), "23514"),
        ("tags", format!("{{{}}}", ["t"; 21].join(",")), "23514"),
        ("state", text("running"), "22023"),
        ("state", text(""), "22023"),
        ("kind", text(""), "23514"),
        ("kind", "ü".repeat(201), "23514"),
        ("queue", "q".repeat(201), "23514"),
        ("priority", text("0"), "23514"),
        ("priority", text("5"), "23514"),
        ("priority", text("high"), "22P02"),
        ("priority", text(""), "22P02"),
        ("priority", text("1.5"), "22P02"),
        ("max_attempts", text("1001"), "23514"),
        ("max_attempts", text("0x1"), "22P02"),
        ("run_at", text("soon"), "22007"),
        ("run_at", text(""), "22007"),
        ("unique_key", text(""), "22P02"),
        ("unique_key", text("00ff"), "22P02"),
        ("unique_key", text("\\x"), "22023"),
        ("unique_key", text("\\x0g"), "22P02"),
        ("unique_key", text("\\x0"), "22P02"),
        ("ordering_key", text("\\x0g"), "22P02"),
        ("unique_states", text("11111111"), "22023"),
    ]
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('"', "\"\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn values() {
    let mut cases = Vec::new();
    for (column, value, sqlstate) in bad_values() {
        // The third job, whose row begins in line 6; the value behind a field of two lines, where it is not the kind itself.
        let good = "\"a\nb\",__AWA_NULL__\n";
        let csv = match column {
            "kind" => format!("queue,kind\n\"x\ny\",a\n\"x\ny\",b\n\"x\ny\",{}\n", quoted(&value)),
            _ => format!("kind,{column}\n{good}{good}\"a\nb\",{}\n", quoted(&value)),
        };
        cases.push(case(csv, sqlstate, 7, column, 3));
    }
    let states = "kind,unique_key,unique_states\nk,\\x00,1111111\n";
    cases.push(case(states, "22P02", 2, "unique_states", 1));
    cases.push(case(states.replace("1111111", "1111111x"), "22P02", 2, "unique_states", 1));
    cases.push(case("kind,unique_key,uniqueness\nk,\\x00,true\n", "22023", 2, "uniqueness", 1));
    cases.push(case("kind,queue\nk,q\n__AWA_NULL__,q\n", "23502", 3, "kind", 2));
    assert_refused(cases).await;
}

/// A column that the CSV does not have has no place in it.
#[tokio::test(flavor = "multi_thread")]
async fn no_kind_at_all() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let refused = failure(enqueue(&client, b"queue\n\"a\nb\"\n", "").await);
        let found = (refused.sqlstate.as_str(), refused.column.as_str(), refused.ordinal(), refused.context.as_str());
        assert_eq!(found, ("23502", "kind", Some(1), "CSV line 2"), "{refused:?}");
    }
}

/// Line ends of every kind are counted, also in quotes.
#[tokio::test(flavor = "multi_thread")]
async fn lines_are_counted_as_editors_do() {
    let mut cases = Vec::new();
    for end in ["\n", "\r\n", "\r"] {
        let csv = ["kind,priority", "a,1", "\"b", "", "c\",2", "", "d,9", ""].join(end);
        cases.push(case(csv.clone(), "23514", 7, "priority", 3));
        cases.push(case(format!("\u{feff}{csv}"), "23514", 7, "priority", 3));
        cases.push(with(
            ", columns => '{kind,priority}'",
            case(csv.replace("kind,priority", "\"a\"\"b\",c"), "23514", 7, "priority", 3),
        ));
    }
    cases.push(case("kind,priority\r\na,1\rb,1\nc,9", "23514", 4, "priority", 3));
    assert_refused(cases).await;
}

/// A key that comes twice is known when all rows are read; the line is that of the second job's row.
#[tokio::test(flavor = "multi_thread")]
async fn taken_keys() {
    let csv = "kind,args,uniqueness\n\"k\n\",1,true\nk,2,true\nk,3,false\n\"k\n\",1,true\n";
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let refused = failure(enqueue(&client, csv.as_bytes(), "").await);
        let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.ordinal());
        assert_eq!(found, ("23505", "idx_awa_jobs_unique", Some(4)), "{refused:?}");
        assert!(refused.context.starts_with("CSV line 6"), "{refused:?}");
        assert_nothing_stored(&client, storage, "23505").await;

        enqueue(&client, b"kind,args,uniqueness\nk,2,true\n", "").await.expect("a holder");
        let refused = failure(enqueue(&client, csv.replace("\"k\n\",1", "k,5").replace("k,5", "k,6").as_bytes(), "").await);
        assert_eq!((refused.constraint.as_str(), refused.sqlstate.as_str()), ("idx_awa_jobs_unique", "23505"), "{refused:?}");
        assert_eq!(stored_kinds(&client, storage).await.len(), 1);
    }
}

/// What awa's workers cannot take, on awa's storage.
#[tokio::test(flavor = "multi_thread")]
async fn what_awas_workers_cannot_take() {
    let deep = format!("{}1{}", "[".repeat(128), "]".repeat(128));
    let cases = [
        case("kind,args\nk,1\nk,1e400\n", "22003", 3, "args", 2),
        case(format!("kind,args\nk,1\nk,{}\n", quoted(&deep)), "54000", 3, "args", 2),
        case("kind,run_at\nk,2041-01-01\nk,-infinity\n", "22008", 3, "run_at", 2),
        case("kind,state,run_at\nk,scheduled,9999-12-31\nk,available,infinity\n", "22008", 3, "run_at", 2),
    ];
    let attached = Storage::Attached.db().await.connect().await;
    let embedded = Storage::Embedded.db().await.connect().await;
    for case in cases {
        assert_place(&failure(enqueue(&attached, &case.csv, "").await), &case);
        assert_eq!(enqueue(&embedded, &case.csv, "").await.expect("the embedded storage takes it").len(), 2);
    }
    assert_nothing_stored(&attached, Storage::Attached, "refused").await;
}

/// Arguments that make no sense, before the CSV is looked at.
#[tokio::test(flavor = "multi_thread")]
async fn arguments() {
    let bad = [
        ", delimiter => ''",
        ", delimiter => ',,'",
        ", delimiter => 'ü'",
        ", delimiter => '\"'",
        ", delimiter => E'\\n'",
        ", delimiter => E'\\r'",
        ", null_string => 'a,b'",
        ", null_string => 'a\"b'",
        ", null_string => E'a\\nb'",
        ", null_string => 'a;b', delimiter => ';'",
        ", columns => '{}'",
        ", columns => '{kind,colour}'",
        ", columns => '{kind,queue,kind}'",
        ", columns => '{kind,NULL}'",
        ", columns => '{kind,job_id}'",
        ", columns => '{Kind}'",
        ", on_conflict => 'ignore'",
        ", on_conflict => 'Skip'",
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for arguments in bad {
            for csv in [&b"kind\ngood\n"[..], b"", b"\xff"] {
                let refused = failure(enqueue(&client, csv, arguments).await);
                assert_eq!(refused.sqlstate, "22023", "{arguments}: {refused:?}");
            }
        }
        assert_nothing_stored(&client, storage, "bad arguments").await;
    }
}

/// A message says enough of a value to find it by, not all of it.
#[tokio::test(flavor = "multi_thread")]
async fn big_mistakes_have_short_messages() {
    let client = Storage::Embedded.db().await.connect().await;
    for (csv, sqlstate) in [
        ("E'kind\\ngood\\n\"' || repeat('x', 50000000)", "22P04"),
        ("E'kind,state\\ngood,\\ngood,' || repeat('x', 50000000)", "22023"),
        ("E'kind\\ngood\\n' || repeat('x,', 10000000)", "22P04"),
        ("'kind,' || repeat('x', 50000000)", "22P04"),
        ("E'kind,args\\ngood,1\\ngood,\"' || repeat('[', 1000000) || '\"'", "54001"),
    ] {
        let refused = failure(client.query(&format!("SELECT * FROM awa.enqueue_csv({csv}, null_string => '')"), &[]).await);
        assert_eq!(refused.sqlstate, sqlstate, "{csv}: {:.300}", refused.message);
        assert!(refused.message.len() < 1000 && refused.context.len() < 1000, "{csv}: {:.300}", refused.message);
    }
    assert_nothing_stored(&client, Storage::Embedded, "refused").await;
}
