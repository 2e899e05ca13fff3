//! Taken keys: who is left out, what the session is told of it, and whom it waits for.

use awa_ingest_tests::copy::{Format, Row, Summary, copy_csv, copy_rows, last_ingest, last_summary};
use awa_ingest_tests::jobs::Enqueued;
use awa_ingest_tests::{Db, Storage, assert_nothing_stored, backend_pid, failure, rows, stored_kinds, wait_until_blocked, within};
use serde_json::json;
use tokio_postgres::Client;

const SKIPPING: &str = "awa.ingest_skip_conflicts";

fn keyed(key: u8) -> Row {
    Row { unique_key: Some(vec![key]), unique_states: Some("11000000".to_owned()), ..Row::new(&format!("key {key}"), json!({})) }
}

fn plain() -> Row {
    Row::new("plain", json!({}))
}

fn at_last(row: Row) -> Row {
    Row { run_at: Some("2041-01-01T00:00:00Z".parse().expect("a time")), ..row }
}

/// A committed job with `key`, and its id.
async fn holder(client: &Client, key: u8) -> i64 {
    copy_rows(client, "awa.ingest", Format::Text, &[keyed(key)]).await.expect("the holder");
    last_ingest(client).await[0].job_id.expect("an id")
}

/// Ids as PostgreSQL prints a multirange of them.
fn multirange(ids: &[i64]) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, end)) if *end == *id => *end += 1,
            _ => ranges.push((*id, *id + 1)),
        }
    }
    format!("{{{}}}", ranges.iter().map(|(first, end)| format!("[{first},{end})")).collect::<Vec<_>>().join(","))
}

async fn stored_ids(client: &Client, storage: Storage) -> Vec<i64> {
    let sql = format!(
        "SELECT job_id FROM {} UNION ALL SELECT job_id FROM {} ORDER BY 1",
        storage.table("ready_entries"),
        storage.table("deferred_jobs")
    );
    client.query(&sql, &[]).await.expect(&sql).iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_is_told_what_was_skipped() {
    for storage in Storage::BOTH {
        for format in Format::ALL {
            let client = storage.db().await.connect().await;
            let taken = holder(&client, 1).await;
            let other = Row { queue: Some("other".to_owned()), ..plain() };
            let batch = [
                keyed(2),
                keyed(1),
                keyed(3),
                keyed(2),
                plain(),
                at_last(keyed(4)),
                keyed(4),
                at_last(keyed(1)),
                other,
                keyed(3),
                plain(),
            ];
            assert_eq!(copy_rows(&client, SKIPPING, format, &batch).await.expect("COPY"), batch.len() as u64);

            let last = last_ingest(&client).await;
            let ids: Vec<i64> = last.iter().filter_map(|row| row.job_id).collect();
            assert_eq!(last.iter().map(|row| row.ord).collect::<Vec<_>>(), (1..=11).collect::<Vec<_>>());
            let enqueued: Vec<i64> = last.iter().filter(|row| row.job_id.is_some()).map(|row| row.ord).collect();
            assert_eq!(enqueued, [1, 3, 5, 6, 9, 11], "a repeated key keeps its first job, {format:?}, {storage:?}");
            assert!(ids.is_sorted_by(|a, b| a < b));
            let of = |ord: usize| last[ord - 1].job_id;
            let conflicts = last.iter().map(|row| row.conflicts_with).collect::<Vec<_>>();
            let expected = [None, Some(taken), None, of(1), None, None, of(6), Some(taken), None, of(3), None];
            assert_eq!(conflicts, expected, "{format:?}, {storage:?}");

            assert_eq!(stored_ids(&client, storage).await[1..], ids);
            let summary = last_summary(&client).await.expect("a COPY");
            let expected = Summary { rows: 11, enqueued: 6, skipped: 5, deferred: 1, lanes: 2, job_ids: Some(multirange(&ids)) };
            assert_eq!(summary, expected, "{format:?}, {storage:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_gives_what_was_enqueued() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let taken = holder(&client, 1).await;
        let insert = r"INSERT INTO awa.ingest_skip_conflicts (kind, args, unique_key, unique_states)
            SELECT 'k', to_jsonb(n), decode(key, 'hex'), left('11000000', length(key) * 4)
            FROM unnest('{02,01,NULL,02,03,01,NULL,03}'::text[]) WITH ORDINALITY AS source (key, n) RETURNING args::text::bigint AS n, job_id";
        let returned: Vec<(i64, i64)> =
            client.query(insert, &[]).await.expect(insert).iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(returned.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 3, 5, 7], "{storage:?}");
        let ids: Vec<i64> = returned.iter().map(|(_, id)| *id).collect();
        assert_eq!(stored_ids(&client, storage).await, [vec![taken], ids.clone()].concat());
        let last = last_ingest(&client).await;
        let of = |n: i64| returned.iter().find(|(number, _)| *number == n).map(|(_, id)| *id);
        let expected = [None, Some(taken), None, of(1), None, Some(taken), None, of(5)];
        for (n, (row, conflicts_with)) in (1..).zip(last.iter().zip(expected)) {
            assert_eq!(*row, Enqueued { ord: n, job_id: of(n), conflicts_with }, "{storage:?}");
        }
        let summary = last_summary(&client).await.expect("an INSERT");
        let expected = Summary { rows: 8, enqueued: 4, skipped: 4, deferred: 0, lanes: 1, job_ids: Some(multirange(&ids)) };
        assert_eq!(summary, expected);
        let claims = format!("(SELECT job_id FROM {})", storage.table("job_unique_claims"));
        assert_eq!(rows(&client, &claims, &[]).await.len(), 3);
    }
}

/// Everything skipped: no lane is touched, and it is no error.
#[tokio::test(flavor = "multi_thread")]
async fn all_skipped() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let taken = holder(&client, 1).await;
        copy_rows(&client, SKIPPING, Format::Csv, &vec![keyed(1); 100]).await.expect("COPY");
        let expected = Summary { rows: 100, enqueued: 0, skipped: 100, deferred: 0, lanes: 0, job_ids: Some("{}".to_owned()) };
        assert_eq!(last_summary(&client).await, Some(expected), "{storage:?}");
        assert!(last_ingest(&client).await.iter().all(|row| row.job_id.is_none() && row.conflicts_with == Some(taken)));
        assert_eq!(stored_ids(&client, storage).await, [taken]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_errors_elsewhere() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        for format in Format::ALL {
            let repeated = [plain(), keyed(7), at_last(plain()), keyed(7)];
            let refused = failure(copy_rows(&client, "awa.ingest", format, &repeated).await);
            let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.ordinal());
            assert_eq!(found, ("23505", "idx_awa_jobs_unique", Some(4)), "{format:?}, {storage:?}: {refused:?}");
        }
        let insert = "INSERT INTO awa.ingest (kind, uniqueness) VALUES ('a', NULL), ('b', 'true'), ('b', 'true')";
        for returning in ["", "RETURNING job_id"] {
            let refused = failure(client.query(&format!("{insert} {returning}"), &[]).await);
            let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.ordinal());
            assert_eq!(found, ("23505", "idx_awa_jobs_unique", Some(3)), "{returning}, {storage:?}: {refused:?}");
        }
        assert_nothing_stored(&client, storage, "refused").await;

        let taken = holder(&client, 1).await;
        let refused = failure(copy_rows(&client, "awa.ingest", Format::Text, &[keyed(2), keyed(1)]).await);
        assert_eq!((refused.constraint.as_str(), refused.ordinal()), ("idx_awa_jobs_unique", Some(2)));
        assert!(refused.detail.contains(&format!("id {taken}")), "{refused:?}");
        assert_eq!(rows(&client, &storage.table("job_unique_claims"), &[]).await.len(), 1);
        assert_eq!(stored_ids(&client, storage).await, [taken]);
    }
}

/// A statement for a key that another session holds but has not committed.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Copy(&'static str),
    Returning,
}

impl Waiting {
    async fn run(self, client: &Client) -> Result<usize, tokio_postgres::Error> {
        let csv = "first,\\x02,11000000\nsecond,\\x01,11000000\n";
        match self {
            Self::Copy(table) => copy_csv(client, table, "kind, unique_key, unique_states", csv).await.map(|_| 0),
            Self::Returning => {
                let insert = r"INSERT INTO awa.ingest_skip_conflicts (kind, unique_key, unique_states)
                    VALUES ('first', '\x02', '11000000'), ('second', '\x01', '11000000') RETURNING job_id";
                client.query(insert, &[]).await.map(|rows| rows.len())
            }
        }
    }
}

async fn wait_for_key(db: &Db, storage: Storage, waiting: Waiting, commit: bool) {
    let (parked, observer, waiter) = (db.connect().await, db.connect().await, db.connect().await);
    parked.batch_execute("BEGIN").await.unwrap();
    let held = holder(&parked, 1).await;
    let pid = backend_pid(&waiter).await;
    let statement = tokio::spawn(async move {
        let result = waiting.run(&waiter).await;
        (waiter, result)
    });
    wait_until_blocked(&observer, pid).await;
    parked.batch_execute(if commit { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
    let (waiter, result) = within("the waiting statement", statement).await.expect("the task");

    let case = format!("{waiting:?}, commit {commit}, {storage:?}");
    let kinds = stored_kinds(&observer, storage).await;
    match (waiting, commit) {
        (Waiting::Copy("awa.ingest"), true) => {
            let refused = failure(result);
            assert_eq!((refused.constraint.as_str(), refused.ordinal()), ("idx_awa_jobs_unique", Some(2)), "{case}: {refused:?}");
            assert_eq!(kinds, ["key 1"], "{case}");
        }
        (_, true) => {
            result.expect(&case);
            assert_eq!(last_ingest(&waiter).await[1].conflicts_with, Some(held), "{case}");
            assert_eq!(kinds, ["key 1", "first"], "{case}");
        }
        (_, false) => {
            let returned = result.expect(&case);
            assert!(!matches!(waiting, Waiting::Returning) || returned == 2, "{case}");
            assert!(last_ingest(&waiter).await.iter().all(|row| row.job_id.is_some()), "{case}");
            assert_eq!(kinds, ["first", "second"], "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_claim_is_waited_for() {
    for storage in Storage::BOTH {
        for waiting in [Waiting::Copy("awa.ingest"), Waiting::Copy(SKIPPING), Waiting::Returning] {
            for commit in [false, true] {
                wait_for_key(&storage.db().await, storage, waiting, commit).await;
            }
        }
    }
}

/// The session is told of nothing that was rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_back_is_forgotten() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let insert = |kind: &str| format!("INSERT INTO awa.ingest (kind) SELECT '{kind}' FROM generate_series(1, 3)");
        client.batch_execute(&insert("kept")).await.unwrap();
        let kept = last_ingest(&client).await;
        assert_eq!(kept.len(), 3);

        for undo in ["ROLLBACK", "ROLLBACK TO s; COMMIT"] {
            client.batch_execute("BEGIN; SAVEPOINT s").await.unwrap();
            client.batch_execute(&insert("lost")).await.unwrap();
            assert_ne!(last_ingest(&client).await, kept);
            client.batch_execute(undo).await.unwrap();
            assert_eq!((last_ingest(&client).await, last_summary(&client).await), (vec![], None), "{undo}, {storage:?}");
        }

        // What is in a savepoint that was released stands and falls with the transaction.
        client.batch_execute("BEGIN; SAVEPOINT a; SAVEPOINT b").await.unwrap();
        client.batch_execute(&insert("inner")).await.unwrap();
        client.batch_execute("RELEASE b; SAVEPOINT c; ROLLBACK TO c").await.unwrap();
        assert_eq!(last_summary(&client).await.expect("it stands").enqueued, 3);
        client.batch_execute("ROLLBACK TO a").await.unwrap();
        assert_eq!(last_summary(&client).await, None);
        client.batch_execute(&insert("outer")).await.unwrap();
        client.batch_execute("SAVEPOINT d; ROLLBACK TO d; COMMIT").await.unwrap();
        assert_eq!(last_summary(&client).await.expect("it is committed").enqueued, 3);

        // A transaction of something else changes nothing; one that fails must not be taken for the one before.
        let before = last_ingest(&client).await;
        client.batch_execute("BEGIN; SELECT 1; ROLLBACK").await.unwrap();
        assert_eq!(last_ingest(&client).await, before, "{storage:?}");
        failure(copy_csv(&client, "awa.ingest", "kind, priority", "k,9\n").await);
        assert_eq!((last_ingest(&client).await, last_summary(&client).await), (vec![], None), "{storage:?}");
        assert_eq!(stored_kinds(&client, storage).await, [["kept"; 3], ["outer"; 3]].concat());
    }
}

/// It belongs to the session, whoever it is in between, and to no other.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_the_sessions_own() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (client, other) = (db.connect().await, db.connect().await);
        client.batch_execute("INSERT INTO awa.ingest (kind) VALUES ('a'), ('b')").await.unwrap();
        client.batch_execute("SELECT awa.enqueue('function'); DISCARD TEMP").await.unwrap();
        assert_eq!((last_ingest(&client).await.len(), last_ingest(&other).await.len()), (2, 0));
        // Before the INSERT's last row there is nothing yet, and behind it there is, also in the same statement.
        for (before, from) in [(0, "new"), (2, "(SELECT count(*) FROM new) AS all_of_it")] {
            let both = format!(
                "WITH new AS (INSERT INTO awa.ingest (kind) VALUES ('c'), ('d') RETURNING job_id)
                 SELECT (SELECT count(*) FROM awa.last_ingest()) AS before FROM {from}"
            );
            let row = &client.query(&both, &[]).await.expect(&both)[0];
            assert_eq!(row.get::<_, i64>("before"), before, "{from}, {storage:?}");
            assert_eq!(last_ingest(&client).await.len(), 2);
        }
    }
}

/// An outcome with too many runs for an eighth of the memory is not kept, but the jobs are.
#[tokio::test(flavor = "multi_thread")]
async fn a_fragmented_outcome_is_not_kept() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("SET awa_ingest.batch_memory = '64kB'").await.unwrap();
        // Even numbers are taken, by holders in an order that makes no run of them.
        let taken = "INSERT INTO awa.ingest (kind, args, uniqueness)
            SELECT 'k', to_jsonb(n), 'true' FROM generate_series(0, 4999, 2) AS n ORDER BY md5(n::text)";
        assert_eq!(client.execute(taken, &[]).await.expect(taken), 2500);
        assert_eq!(last_ingest(&client).await.len(), 2500, "one run");

        let csv: String = (0..5000).map(|n| format!("k,{n},true\n")).collect();
        assert_eq!(copy_csv(&client, SKIPPING, "kind, args, uniqueness", &csv).await.expect("COPY"), 5000);
        let refused = failure(client.query("SELECT * FROM awa.last_ingest()", &[]).await);
        assert_eq!(refused.sqlstate, "54000", "{refused:?}");
        let expected = Summary { rows: 5000, enqueued: 2500, skipped: 2500, deferred: 0, lanes: 1, job_ids: None };
        assert_eq!(last_summary(&client).await, Some(expected), "{storage:?}");
        assert_eq!(stored_ids(&client, storage).await.len(), 5000);

        // With the memory it takes, and for the next statement, there is an answer.
        client.batch_execute("RESET awa_ingest.batch_memory").await.unwrap();
        copy_csv(&client, SKIPPING, "kind, args, uniqueness", &csv).await.expect("COPY");
        let last = last_ingest(&client).await;
        assert!(last.len() == 5000 && last.iter().all(|row| row.conflicts_with.is_some()), "{storage:?}");
    }
}
