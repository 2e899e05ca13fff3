//! What awa's function refuses, the replacement refuses with the same SQLSTATE, and both leave the same behind.

use awa_ingest_tests::{Db, Failure, Storage, Stored, failure};
use tokio_postgres::Client;

use crate::setup::{attached, engine, insert, run, status, try_insert};

const LONG_KEY: &str =
    "'k', p_unique_key => (SELECT decode(string_agg(md5(n::text), ''), 'hex') FROM generate_series(1, 300) AS n),
    p_unique_states => '11111111'";

/// Calls that queue storage refuses; the canonical engine takes some of them.
const REFUSED: &[(&str, &str)] = &[
    ("23514", "repeat('k', 201)"),
    ("23514", "repeat('é', 201)"),
    ("23514", "'k', repeat('q', 201)"),
    ("23514", "'k', repeat('q', 201), p_state => 'scheduled'"),
    ("23514", "'k', repeat('🐘', 201)"),
    ("23514", "'k', p_priority => 0::smallint"),
    ("23514", "'k', p_priority => 5::smallint"),
    ("23514", "'k', p_priority => (-32768)::smallint, p_state => 'retryable'"),
    ("23514", "'k', p_max_attempts => 0::smallint"),
    ("23514", "'k', p_max_attempts => 1001::smallint"),
    ("23514", "'k', p_max_attempts => (-1)::smallint, p_state => 'scheduled'"),
    ("23514", "'k', p_tags => array_fill('t'::text, ARRAY[21])"),
    ("23514", "'k', p_tags => array_fill('t'::text, ARRAY[3, 7])"),
    ("23514", "'k', p_tags => array_fill(NULL::text, ARRAY[21]), p_state => 'scheduled'"),
    ("23502", "NULL"),
    ("23502", "NULL, p_state => 'scheduled'"),
    ("23502", "NULL, p_unique_key => 'free', p_unique_states => '11111111'"),
    ("22023", "'k', p_state => 'running'"),
    ("22023", "'k', p_state => 'completed'"),
    ("22023", "'k', p_state => 'failed'"),
    ("22023", "'k', p_state => 'cancelled'"),
    ("22023", "'k', p_state => 'waiting_external'"),
    ("22P02", "'k', p_state => 'nonsense'"),
    ("22P02", "'k', p_args => '{'"),
    ("22026", "'k', p_unique_states => '1'"),
    ("22026", "'k', p_unique_key => 'free', p_unique_states => B'111111111'"),
    ("22026", "'k', p_unique_key => 'free', p_unique_states => B'1111111', p_state => 'scheduled'"),
    ("54000", LONG_KEY),
    // A key that is held by a ready job, and one that is held by a deferred one.
    ("23505", "'k', p_unique_key => 'ready', p_unique_states => '11111111'"),
    ("23505", "'other', 'other', p_unique_key => 'ready', p_unique_states => '10000000', p_state => 'scheduled'"),
    ("23505", "'k', p_unique_key => 'deferred', p_unique_states => '11111111'"),
    ("23505", "'k', p_unique_key => 'deferred', p_unique_states => '00001000', p_state => 'retryable'"),
    // Several at once.
    ("22023", "'k', p_state => 'running', p_unique_key => 'ready', p_unique_states => '11111111'"),
];

/// Several mistakes in one call: either may be named first, but one of them is.
const SEVERAL: [(&[&str], &str); 5] = [
    (&["23514", "23502"], "NULL, p_priority => 0::smallint"),
    (&["23514", "22023"], "'k', p_priority => 9::smallint, p_state => 'running'"),
    (&["22023", "23502"], "NULL, p_state => 'running'"),
    (&["23505", "23502"], "NULL, p_unique_key => 'ready', p_unique_states => '11111111'"),
    (&["23514", "23505"], "repeat('k', 201), p_unique_key => 'ready', p_unique_states => '11111111'"),
];

const HOLDERS: [&str; 2] = [
    "'holder', p_unique_key => 'ready', p_unique_states => '11111111'",
    "'holder', p_unique_key => 'deferred', p_unique_states => '11111111', p_state => 'scheduled'",
];

/// The refusal of a call in a transaction, which is usable afterwards.
async fn refusal(client: &Client, arguments: &str) -> Option<Failure> {
    run(client, "SAVEPOINT before").await;
    let refused = match try_insert(client, arguments).await {
        Ok(_) => None,
        refused => Some(failure(refused)),
    };
    run(client, "ROLLBACK TO before").await;
    refused
}

/// What two refusals have to agree in.
fn told(refused: &Failure) -> (&str, &str) {
    // awa's checks of lengths and ranges name no constraint, but a table's name theirs.
    let constraint = if refused.sqlstate == "23505" { refused.constraint.as_str() } else { "" };
    (&refused.sqlstate, constraint)
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_storage_refuses_as_awa_does() {
    let (original, replaced) = (Db::awa().await.connect().await, attached().await.connect().await);
    assert_eq!(status(&original).await.as_deref(), Some("original"));
    for client in [&original, &replaced] {
        for holder in HOLDERS {
            insert(client, holder).await;
        }
        run(client, "BEGIN").await;
    }
    let mut differences = Vec::new();
    for (sqlstate, arguments) in REFUSED {
        let awas = refusal(&original, arguments).await.unwrap_or_else(|| panic!("awa takes {arguments}"));
        assert_eq!(awas.sqlstate, *sqlstate, "{arguments}: {awas:?}");
        let ours = refusal(&replaced, arguments).await;
        if ours.as_ref().map(told) != Some(told(&awas)) {
            differences.push(format!("{arguments}\n  awa: {awas:?}\n  the replacement: {ours:?}"));
        }
        if *sqlstate == "23502" {
            assert_eq!(ours.expect("refused").column, "kind");
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for (allowed, arguments) in SEVERAL {
        for client in [&original, &replaced] {
            let refused = refusal(client, arguments).await.expect(arguments);
            assert!(allowed.contains(&refused.sqlstate.as_str()), "{arguments}: {refused:?}");
        }
    }
    for client in [&original, &replaced] {
        insert(client, "'after', 'q'").await;
        run(client, "COMMIT").await;
    }
    let [expected, found] =
        [Stored::read_by_job(&original, Storage::Attached).await, Stored::read_by_job(&replaced, Storage::Attached).await];
    assert_eq!((expected.jobs(), found.jobs()), (3, 3));
    // Positions that were given back are gaps, and who leaves more of them is no matter.
    let kinds = "SELECT jsonb_agg(kind ORDER BY id) FROM awa.jobs";
    for client in [&original, &replaced] {
        let kinds: serde_json::Value = client.query_one(kinds, &[]).await.unwrap().get(0);
        assert_eq!(kinds, serde_json::json!(["holder", "holder", "after"]));
    }
}

/// awa cannot wake the workers of a queue whose name is longer than a channel's, and refuses its jobs. The replacement wakes them by the
/// name as LISTEN cuts it.
#[tokio::test(flavor = "multi_thread")]
async fn long_queue_names_are_taken() {
    let (original, replaced) = (Db::awa().await.connect().await, attached().await.connect().await);
    for arguments in ["'k', repeat('q', 60)", "'k', repeat('é', 30)", "'k', repeat('🐘', 200)"] {
        assert_eq!(failure(try_insert(&original, arguments).await).sqlstate, "22023", "{arguments}");
        insert(&replaced, arguments).await;
    }
    assert_eq!(Stored::read(&replaced, Storage::Attached).await.jobs(), 3);
}

/// The canonical engine takes states that queue storage does not, and refuses the rest through its tables.
#[tokio::test(flavor = "multi_thread")]
async fn the_canonical_engine_refuses_as_awa_does() {
    let (original, replaced) = (Db::awa().await.connect().await, attached().await.connect().await);
    let (mut taken, mut differences) = (0, Vec::new());
    for client in [&original, &replaced] {
        run(client, &engine("canonical")).await;
        for holder in HOLDERS {
            insert(client, holder).await;
        }
        run(client, "BEGIN").await;
    }
    for (_, arguments) in REFUSED {
        let (awas, ours) = (refusal(&original, arguments).await, refusal(&replaced, arguments).await);
        if ours.as_ref().map(told) != awas.as_ref().map(told) {
            differences.push(format!("{arguments}\n  awa: {awas:?}\n  the replacement: {ours:?}"));
        }
        taken += usize::from(awas.is_none());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!((5..20).contains(&taken), "{taken}");
    for client in [&original, &replaced] {
        insert(client, "'after', 'q'").await;
        run(client, "COMMIT").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_transaction_refuses() {
    let (original, replaced) = (Db::awa().await.connect().await, attached().await.connect().await);
    for state in ["active", "canonical"] {
        for arguments in ["'k'", "'k', p_state => 'scheduled'", "'k', p_unique_key => 'a', p_unique_states => '11111111'"] {
            for client in [&original, &replaced] {
                run(client, &engine(state)).await;
                run(client, "BEGIN READ ONLY").await;
                let refused = failure(try_insert(client, arguments).await);
                assert_eq!(refused.sqlstate, "25006", "{state}: {arguments}: {refused:?}");
                run(client, "ROLLBACK").await;
            }
        }
    }
}

/// The client's statement is refused as a whole: a row that came before the refused one does not stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_takes_its_statement_along() {
    let client = attached().await.connect().await;
    for state in ["active", "canonical"] {
        run(&client, &engine(state)).await;
        let rows = "SELECT job.id FROM generate_series(1, 5) AS n, LATERAL awa.insert_job_compat(
            'k', p_args => to_jsonb(n), p_unique_key => int4send(n % 4), p_unique_states => '11111111') AS job";
        let refused = failure(client.query(rows, &[]).await);
        assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"));
        let left: i64 = client
            .query_one("SELECT (SELECT count(*) FROM awa.jobs) + (SELECT count(*) FROM awa.job_unique_claims)", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(left, 0, "{state}");
    }
}
