//! Unique jobs and triggers of the canonical engine: keys conflict with those of awa's own inserts, and awa's triggers do their work.

use std::sync::Arc;

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Db, backend_pid, failure, rows, wait_until_blocked, within};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::calls::{Way, deferred, keyed, plain, with_key};
use crate::canonical::canonical;
use crate::last_jobs::canonical_with_extension;
use crate::old::{insert, insert_original, keep_original};
use crate::{attach, emptied, numbers};

/// A database on the canonical engine where awa's own function can still be called.
async fn with_original() -> Db {
    let db = canonical_with_extension().await;
    keep_original(&db).await;
    attach(db).await
}

/// Every claim belongs to a job that is there, in a state that holds it, and every such job has its claim.
async fn assert_claims_belong(client: &Client, when: &str) {
    let holders = "(SELECT encode(unique_key, 'hex') AS key, id AS job_id FROM awa.jobs
        WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND awa.job_state_in_bitmask(unique_states, state))";
    let claims = "(SELECT encode(unique_key, 'hex') AS key, job_id FROM awa.job_unique_claims)";
    awa_ingest_tests::assert_same_rows(when, &rows(client, holders, &[]).await, &rows(client, claims, &[]).await);
}

/// Both tables hold keys against each other, whoever wrote them.
#[tokio::test(flavor = "multi_thread")]
async fn keys_conflict_with_awas() {
    let db = with_original().await;
    for way in Way::SKIPPING.into_iter().chain([Way::Returning]) {
        let client = emptied(&db).await;
        insert_original(&client, &keyed(1, "q", 100)).await.expect("awa's");
        insert_original(&client, &deferred(keyed(2, "q", 101))).await.expect("awa's");
        let sent = [
            deferred(keyed(1, "q", 0)),
            keyed(3, "q", 1),
            keyed(2, "p", 2),
            deferred(keyed(4, "p", 3)),
            keyed(3, "p", 4),
            plain("p", 5),
            with_key(plain("q", 6), 1, "10000000"),
        ];
        let outcomes = way.skip(&client, &sent).await.unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        assert_eq!(
            outcomes.iter().map(Option::is_some).collect::<Vec<_>>(),
            [false, true, false, true, false, true, true],
            "{way:?}"
        );
        assert_claims_belong(&client, &format!("{way:?}")).await;
        assert_eq!(numbers(&client, "awa.jobs_hot").await, [100, 1, 5, 6], "{way:?}");
        assert_eq!(numbers(&client, "awa.scheduled_jobs").await, [101, 3], "{way:?}");

        for taken in [keyed(3, "q", 7), deferred(keyed(4, "q", 8))] {
            let refused = failure(insert_original(&client, &taken).await);
            assert_eq!(
                (refused.sqlstate.as_str(), refused.constraint.as_str()),
                ("23505", "idx_awa_jobs_unique"),
                "{way:?}: {refused:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_are_errors_where_they_are_not_skipped() {
    let client = with_original().await.connect().await;
    let held = insert_original(&client, &keyed(1, "q", 100)).await.expect("awa's")["id"].as_i64().unwrap();
    for way in Way::RAISING {
        for batch in
            [[plain("q", 0), keyed(2, "q", 1), deferred(keyed(1, "q", 2))], [plain("q", 0), keyed(3, "q", 1), keyed(3, "q", 2)]]
        {
            let refused = failure(way.enqueue(&client, &batch).await);
            let found = (refused.sqlstate.as_str(), refused.constraint.as_str(), refused.ordinal());
            assert_eq!(found, ("23505", "idx_awa_jobs_unique", Some(3)), "{way:?}: {refused:?}");
            assert!(batch[2].state.is_none() || refused.detail.contains(&format!("id {held}")), "{way:?}: {refused:?}");
        }
    }
    let refused = failure(insert(&client, "awa", &keyed(1, "q", 0)).await);
    assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("23505", "idx_awa_jobs_unique"), "{refused:?}");
    assert_eq!(numbers(&client, "awa.jobs_hot").await, [100]);
    assert_claims_belong(&client, "refused").await;
}

/// A key that another transaction has claimed but not committed is waited for; what that transaction does decides.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_claim_is_waited_for() {
    let db = with_original().await;
    let observer = db.connect().await;
    for (at, way) in (0..).zip(Way::SKIPPING) {
        for (turn, ending) in (0..).zip(["COMMIT", "ROLLBACK"]) {
            let (ours, other) = (Arc::new(db.connect().await), db.connect().await);
            ours.batch_execute("SET deadlock_timeout = '100ms'").await.unwrap();
            let key = at * 10 + turn * 2;
            other.batch_execute("SET deadlock_timeout = '1min'; BEGIN").await.unwrap();
            insert_original(&other, &keyed(key + 1, "q", 100)).await.expect("awa's");
            let pid = backend_pid(&ours).await;
            let sent = [plain("q", 0), keyed(key + 1, "q", 1), keyed(key, "q", 2)];
            let statement = {
                let (ours, sent) = (ours.clone(), sent.clone());
                tokio::spawn(async move { way.skip(&ours, &sent).await })
            };
            wait_until_blocked(&observer, pid).await;
            // Keys crossed: the one that skips gives way.
            within("the other one", insert_original(&other, &keyed(key, "q", 101))).await.expect("its key");
            other.batch_execute(ending).await.unwrap();
            let outcomes = within("the statement", statement).await.unwrap().unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
            let free = ending == "ROLLBACK";
            assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), [true, free, free], "{way:?}, {ending}");
        }
    }
    assert_claims_belong(&observer, "after all").await;
}

/// Marks for awa's admin metadata, from which it counts.
#[tokio::test(flavor = "multi_thread")]
async fn admin_metadata_is_counted() {
    let db = canonical().await;
    for way in Way::RAISING {
        let client = emptied(&db).await;
        client.batch_execute("SELECT awa.refresh_admin_metadata()").await.unwrap();
        way.enqueue(&client, &[plain("q", 0), deferred(plain("q", 1)), plain("q", 2), plain("p", 3)]).await.expect("jobs");
        client.batch_execute("SELECT awa.recompute_dirty_admin_metadata()").await.unwrap();
        let counts = rows(&client, "(SELECT queue, available, scheduled FROM awa.queue_state_counts)", &[]).await;
        let expected =
            [json!({"queue": "p", "available": 1, "scheduled": 0}), json!({"queue": "q", "available": 2, "scheduled": 1})];
        awa_ingest_tests::assert_same_rows(&format!("{way:?}"), &expected, &counts);
        assert_eq!(rows(&client, "awa.job_kind_catalog", &[]).await, [json!({"kind": "step", "ref_count": 4})], "{way:?}");
    }
}

/// awa's trigger wakes workers for what is due, and for nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn only_due_jobs_wake_workers() {
    let db = canonical().await;
    let client = db.connect().await;
    let (listener, mut notifications) = db.listen("awa:due").await;
    listener.batch_execute("LISTEN \"awa:future\"; LISTEN \"awa:deferred\"; LISTEN \"awa:skipped\"").await.unwrap();
    let at = |time: &str, row: Row| Row { state: Some("available".to_owned()), run_at: Some(time.parse().expect("a time")), ..row };
    let soon = (chrono::Utc::now() + chrono::TimeDelta::days(1)).to_rfc3339();
    // enqueue_columns has no states, so that it cannot have an available job due at a time.
    for (key, way) in (0..).zip(Way::SKIPPING).filter(|(_, way)| *way != Way::Columns) {
        way.skip(&client, &[keyed(key, "elsewhere", 0)]).await.expect("a holder");
        let past = "2020-01-01T00:00:00Z";
        let sent = [
            at(past, plain("due", 1)),
            at(&soon, plain("future", 2)),
            deferred(plain("deferred", 3)),
            at(past, keyed(key, "skipped", 4)),
            plain("due", 5),
        ];
        way.skip(&client, &sent).await.expect("jobs");
        client.batch_execute("NOTIFY \"awa:due\", 'last'").await.unwrap();
        let mut woken = 0;
        loop {
            let notification = notifications.next().await;
            assert_eq!(notification.channel(), "awa:due", "{way:?}");
            match notification.payload() {
                "last" => break,
                _ => woken += 1,
            }
        }
        assert_eq!(woken, 1, "{way:?}: one for a transaction");
    }
}

/// awa's triggers, and those of the user, see every row.
#[tokio::test(flavor = "multi_thread")]
async fn row_triggers_fire() {
    let client = canonical().await.connect().await;
    client
        .batch_execute(
            "CREATE TABLE audit (n bigint, place text);
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO public.audit VALUES ((NEW.args->>'n')::bigint, TG_TABLE_NAME); RETURN NEW; END $$;
             CREATE TRIGGER note BEFORE INSERT ON awa.jobs_hot FOR EACH ROW EXECUTE FUNCTION note();
             CREATE TRIGGER note BEFORE INSERT ON awa.scheduled_jobs FOR EACH ROW EXECUTE FUNCTION note()",
        )
        .await
        .unwrap();
    for way in Way::RAISING {
        way.enqueue(&client, &[plain("q", 0), deferred(plain("q", 1))]).await.unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        let expected = [json!({"n": 0, "place": "jobs_hot"}), json!({"n": 1, "place": "scheduled_jobs"})];
        assert_eq!(rows(&client, "audit", &[]).await, expected as [Value; 2], "{way:?}");
        client.batch_execute("TRUNCATE audit").await.unwrap();
    }
}
