//! `awa_ingest.detach()` puts back what was there, to the letter, and touches nothing that is not the extension's.

use awa_ingest_tests::{Db, Storage, Stored, Worker, failure};

use crate::setup::{FUNCTION, assert_status, attached, companions, definition, insert, run};

/// A function of the same name and arguments, made by somebody who has a use for it.
const MINE: &str = "DO $do$ BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION awa.insert_job_compat(%s) RETURNS awa.jobs LANGUAGE plpgsql AS %L',
        (SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname = 'insert_job_compat'),
        'BEGIN RAISE ''mine'' USING ERRCODE = ''AB123''; END');
    END $do$";

#[tokio::test(flavor = "multi_thread")]
async fn the_original_comes_back() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let original = definition(&client).await;
    for round in 1..=3 {
        run(&client, "SELECT awa_ingest.attach()").await;
        insert(&client, "'k', 'q', to_jsonb(1)").await;
        run(&client, "SELECT awa_ingest.detach()").await;
        assert_eq!((definition(&client).await, companions(&client).await), (original.clone(), 0));
        assert_status(&client, "original", "detached").await;
        insert(&client, "'k', 'q', to_jsonb(2)").await;
        run(&client, "SELECT awa_ingest.detach(); SELECT awa_ingest.detach()").await;
        assert_eq!(definition(&client).await, original, "nothing to do, round {round}");
    }
    let worker = Worker::builder().queue("q").kind("k").start(&db).await;
    worker.wait_for(6).await;
    let order: Vec<_> = worker.stop().await.into_iter().map(|job| job.args).collect();
    assert_eq!(order, [1, 2, 1, 2, 1, 2], "both wrote to the same lane");
}

/// The text of the settings that a role gave the function is part of it.
#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_function_come_back() {
    let client = Db::awa().await.connect().await;
    for change in ["COST 7", "SET work_mem = '5MB'", "SECURITY DEFINER", "PARALLEL SAFE"] {
        run(&client, &format!("ALTER FUNCTION {FUNCTION} {change}")).await;
        let changed = definition(&client).await;
        if client.batch_execute("SELECT awa_ingest.attach()").await.is_err() {
            // Refusing is as good as restoring, as long as nothing happened.
            assert_eq!((definition(&client).await, companions(&client).await), (changed, 0), "{change}");
            break;
        }
        run(&client, "SELECT awa_ingest.detach()").await;
        assert_eq!(definition(&client).await, changed, "{change}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_leaves_the_replacement() {
    let client = attached().await.connect().await;
    let replaced = definition(&client).await;
    run(&client, "BEGIN; SELECT awa_ingest.detach()").await;
    assert_status(&client, "original", "in the transaction").await;
    insert(&client, "'k'").await;
    run(&client, "ROLLBACK").await;
    assert_status(&client, "replaced", "after it").await;
    assert_eq!((definition(&client).await, companions(&client).await), (replaced, 3));
    insert(&client, "'k'").await;
}

/// Somebody else's body is theirs, whoever they are.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_overwritten_meanwhile_is_left_alone() {
    let client = attached().await.connect().await;
    run(&client, MINE).await;
    let mine = definition(&client).await;
    assert_status(&client, "overwritten", "a body that nobody knows").await;
    let refused = failure(client.batch_execute("SELECT awa_ingest.attach()").await);
    assert_eq!(refused.sqlstate, "55000", "nor is it replaced: {refused:?}");
    assert_eq!(definition(&client).await, mine);

    run(&client, "SELECT awa_ingest.detach()").await;
    assert_eq!((definition(&client).await, companions(&client).await), (mine.clone(), 0));
    assert_status(&client, "unknown", "no longer attached").await;
    run(&client, "SELECT awa_ingest.detach()").await;
    assert_eq!(definition(&client).await, mine);
    run(&client, "DROP EXTENSION awa_ingest").await;
    assert_eq!(definition(&client).await, mine);
}

/// A transaction that has called the replacement still has its jobs when the original is back before it commits.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_the_same_transaction_stay() {
    let (db, reference) = (attached().await, Db::awa().await);
    let (client, original) = (db.connect().await, reference.connect().await);
    run(&client, "BEGIN").await;
    for number in 0..4 {
        let arguments = format!("'k', 'q', to_jsonb({number})");
        insert(&client, &arguments).await;
        insert(&original, &arguments).await;
        let turn = if number % 2 == 0 { "detach" } else { "attach" };
        run(&client, &format!("SELECT awa_ingest.{turn}()")).await;
    }
    run(&client, "COMMIT").await;
    let expected = Stored::read_by_job(&original, Storage::Attached).await;
    expected.assert_same(&Stored::read_by_job(&client, Storage::Attached).await, "attached and detached in turn");
}
