//! A trigger on the storage may leave rows out: that is noticed, soon, and no id is returned for a job that does not exist.

use awa_ingest_tests::{Failure, Storage, failure, rows};
use serde_json::Value;
use tokio_postgres::Client;

/// Has a trigger leave out the rows of `table` for which `condition` holds.
async fn leave_out(client: &Client, storage: Storage, table: &str, condition: &str) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION public.leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER leave_out BEFORE INSERT ON {} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION public.leave_out()",
        storage.table(table)
    );
    client.batch_execute(&sql).await.expect(&sql);
}

/// A call that goes round and round ends with 57014.
async fn refused_soon(client: &Client, call: &str) -> Failure {
    client.batch_execute("SET statement_timeout = '10s'").await.unwrap();
    failure(client.query(call, &[]).await)
}

async fn assert_nothing_enqueued(client: &Client, storage: Storage) {
    for table in ["ready_entries", "ready_segments", "deferred_jobs", "job_unique_claims"] {
        assert_eq!(rows(client, &storage.table(table), &[]).await, Vec::<Value>::new(), "{table}, {storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_left_out_end_the_call() {
    let calls = [
        "SELECT awa.enqueue('k', uniqueness => 'true')",
        r#"SELECT awa.enqueue_batch('[{"kind": "k", "unique": true}]')"#,
        r#"SELECT awa.enqueue_batch('[{"kind": "k", "unique": true}, {"kind": "k", "unique": true}]', 'skip')"#,
        "SELECT awa.enqueue_columns('{k}', unique_key => '{x}', unique_states => '{11111111}', on_conflict => 'skip')",
    ];
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        leave_out(&client, storage, "job_unique_claims", "true").await;
        for call in calls {
            let refused = refused_soon(&client, call).await;
            assert_eq!(refused.sqlstate, "55000", "{call}, {storage:?}: {refused:?}");
            assert!(refused.hint.contains("job_unique_claims"), "{refused:?}");
        }
        assert_nothing_enqueued(&client, storage).await;
        client.query("SELECT awa.enqueue('k')", &[]).await.expect("a job without key");
    }
}

/// One of a thousand is enough.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_left_out_end_the_call() {
    let batch =
        "SELECT awa.enqueue_batch((SELECT jsonb_agg(jsonb_build_object('kind', 'k', 'args', n, 'unique', true, 'run_at', RUN_AT))
                                             FROM generate_series(1, 1000) AS n))";
    for storage in Storage::BOTH {
        for (table, run_at) in [("ready_entries", "NULL"), ("deferred_jobs", "'2030-01-01'")] {
            let client = storage.db().await.connect().await;
            leave_out(&client, storage, table, "NEW.args = '500'").await;
            let single = format!("SELECT awa.enqueue('k', '500', run_at => {run_at})");
            for call in [&single, &batch.replace("RUN_AT", run_at)] {
                let refused = refused_soon(&client, call).await;
                assert_eq!(refused.sqlstate, "55000", "{call}, {storage:?}: {refused:?}");
                assert!(refused.message.contains(table) && refused.hint.contains("trigger"), "{refused:?}");
            }
            assert_nothing_enqueued(&client, storage).await;
            client.query(&single.replace("500", "501"), &[]).await.expect("a job that no trigger leaves out");
        }
    }
}
