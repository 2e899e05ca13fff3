//! Every way in is counted, exactly and by logical queue.

use awa_ingest_tests::copy::copy_csv;
use awa_ingest_tests::{Db, Storage, Template};
use tokio_postgres::Client;

use crate::{assert_bytes, counted, database, of, run, template};

/// Jobs of both kinds as the queue storage has them.
fn stored(storage: Storage) -> String {
    let columns = "SELECT queue, kind, args, payload, unique_key FROM";
    format!("{columns} {} UNION ALL {columns} {}", storage.table("ready_entries"), storage.table("deferred_jobs"))
}

/// A database with awa's function replaced.
async fn attached(template: Template) -> Db {
    let db = database(template).await;
    let client = db.connect().await;
    if template == Template::AwaCanonical {
        run(&client, "CREATE EXTENSION awa_ingest").await;
    }
    run(&client, "SELECT awa_ingest.attach()").await;
    db
}

/// Two jobs of one key: a call that skips writes one of them.
const TWINS: &str = r#"[{"kind": "k", "queue": "Q", "args": {"n": 1}, "unique": {}, "tags": ["a", "b"]},
                        {"kind": "k", "queue": "Q", "args": {"n": 1}, "unique": {}, "tags": ["a", "b"]}]"#;

fn twins(queue: &str) -> String {
    TWINS.replace('Q', queue)
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_count_calls_and_jobs() {
    for storage in Storage::BOTH {
        let client = database(template(storage)).await.connect().await;
        run(&client, "SELECT awa.enqueue('step', '{\"a\": [1, \"ü\"]}', 'one', metadata => '{\"m\": 1}')").await;
        run(&client, "SELECT awa.enqueue('step', 'null', 'one', run_at => now() + interval '1 h')").await;
        run(&client, &format!("SELECT awa.enqueue_batch('{}', 'skip')", twins("batch"))).await;
        run(&client, &format!("SELECT awa.enqueue_batch('{}', 'skip')", twins("batch"))).await;
        run(
            &client,
            "SELECT awa.enqueue_columns(ARRAY['a', 'b', 'c'], queue => ARRAY['left', 'right', 'left'], priority => '{1}')",
        )
        .await;
        run(&client, "SELECT awa.enqueue_csv(E'kind,queue,args\\nk,csv,\"{\"\"x\"\": 2}\"\\nk,csv,\\n', null_string => '')").await;
        run(&client, "SELECT awa.enqueue_batch('[]')").await;
        let expected = [of("batch", 1, 2, 3), of("csv", 2, 1, 0), of("left", 2, 1, 0), of("one", 2, 2, 0), of("right", 1, 1, 0)];
        assert_eq!(counted(&client).await, expected, "{storage:?}");
        assert_bytes(&client, &stored(storage), &format!("{storage:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_and_insert_count_statements() {
    for storage in Storage::BOTH {
        let client = database(template(storage)).await.connect().await;
        copy_csv(&client, "awa.ingest", "kind, queue", "a,copy\nb,copy\nc,copy2\n").await.unwrap();
        copy_csv(&client, "awa.ingest", "kind, queue", "a,copy\n").await.unwrap();
        run(&client, "INSERT INTO awa.ingest (kind, queue) SELECT 'k', 'insert' FROM generate_series(1, 10)").await;
        let rows =
            "INSERT INTO awa.ingest_skip_conflicts (kind, queue, uniqueness) VALUES ('k', 'skip', '{}'), ('k', 'skip', '{}')";
        run(&client, rows).await;
        run(&client, &format!("{rows} RETURNING job_id")).await;
        run(&client, "INSERT INTO awa.ingest (kind, queue) SELECT 'k', 'none' WHERE false").await;
        let expected = [of("copy", 3, 2, 0), of("copy2", 1, 1, 0), of("insert", 10, 1, 0), of("skip", 1, 2, 3)];
        assert_eq!(counted(&client).await, expected, "{storage:?}");
        assert_bytes(&client, &stored(storage), &format!("{storage:?}")).await;
    }
}

/// Jobs of awa's clients, one a call.
async fn call_as_awas_client(client: &Client) {
    let call = "SELECT awa.insert_job_compat('step', 'one', jsonb_build_object('n', n)) FROM generate_series(1, 5) AS n";
    run(client, call).await;
    run(client, "SELECT awa.insert_job_compat('later', 'one', p_state => 'scheduled', p_run_at => now() + interval '1 h')").await;
    run(client, "SELECT awa.insert_job_compat('all', 'two', '[]', p_metadata => '{\"m\": {}}', p_tags => '{a,b}', p_unique_key => 'key', p_unique_states => B'11111000')").await;
    run(client, "SELECT awa_ingest.insert_jobs_compat_batch(ARRAY['k', 'k'], queue => '{batch}')").await;
    run(client, &format!("SELECT awa_ingest.insert_many_skip_unique_conflicts('{}')", twins("many"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_awas_clients_count() {
    let client = attached(Template::Awa).await.connect().await;
    call_as_awas_client(&client).await;
    run(&client, "SELECT awa.insert_job_compat('odd', 'odd', p_tags => '{{a},{b}}', p_metadata => '[1]')").await;
    let expected = [of("batch", 2, 1, 0), of("many", 1, 1, 1), of("odd", 1, 1, 0), of("one", 6, 6, 0), of("two", 1, 1, 0)];
    assert_eq!(counted(&client).await, expected);
    assert_bytes(&client, &stored(Storage::Attached), "queue storage").await;
    let refused =
        client.batch_execute("SELECT awa.insert_job_compat('k', 'two', p_unique_key => 'key', p_unique_states => B'11111000')");
    assert_eq!(awa_ingest_tests::failure(refused.await).sqlstate, "23505");
    assert_eq!(counted(&client).await, expected, "a call that fails");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_canonical_engine_counts_without_lanes() {
    let client = attached(Template::AwaCanonical).await.connect().await;
    call_as_awas_client(&client).await;
    copy_csv(&client, "awa.ingest", "kind, queue", "a,copy#1\nb,copy#1\n").await.unwrap();
    let expected = [of("batch", 2, 1, 0), of("copy#1", 2, 1, 0), of("many", 1, 1, 1), of("one", 6, 6, 0), of("two", 1, 1, 0)];
    assert_eq!(counted(&client).await, expected);
    let payload = "NULLIF(CASE WHEN tags = '{}' THEN '{}' ELSE jsonb_build_object('tags', tags) END
        || CASE WHEN metadata = '{}' THEN '{}' ELSE jsonb_build_object('metadata', metadata) END, '{}')";
    let jobs = format!("SELECT queue, kind, args, {payload} AS payload, unique_key FROM awa.jobs WHERE queue NOT LIKE 'copy%'");
    run(&client, "SELECT awa_ingest.reset_ingest_stats()").await;
    run(&client, "DELETE FROM awa.jobs_hot; DELETE FROM awa.scheduled_jobs; TRUNCATE awa.job_unique_claims").await;
    call_as_awas_client(&client).await;
    assert_bytes(&client, &jobs, "canonical").await;
    let sql = "SELECT count(*) FROM awa_ingest.ingest_stats WHERE lane_lock_waits <> '{0,0,0,0,0}' OR lane_lock_wait_time <> '0'";
    assert_eq!(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0, "there are no lanes");
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_count_as_their_queue() {
    let db = attached(Template::Awa).await;
    let client = db.connect().await;
    run(&client, "SET awa_ingest.queue_stripe_count = 4").await;
    run(&client, "SELECT awa.enqueue_columns(array_fill('k'::text, ARRAY[8]), queue => '{q}')").await;
    run(&client, "SELECT awa.insert_job_compat('k', 'q') FROM generate_series(1, 4)").await;
    run(&client, "SELECT awa.enqueue('k', queue => 'q#3'), awa.enqueue('k', queue => 'q#4')").await;
    run(
        &client,
        "SET awa_ingest.queue_stripe_count = 'auto'; SELECT awa.enqueue_columns(array_fill('k'::text, ARRAY[4]), queue => '{q}')",
    )
    .await;
    assert_eq!(counted(&client).await, [of("q", 17, 7, 0), of("q#4", 1, 1, 0)]);
    let sql = "SELECT (SELECT sum(n) FROM unnest(lane_lock_waits) AS n)::bigint FROM awa_ingest.ingest_stats WHERE queue = 'q'";
    let lanes: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(lanes, 4 + 4 + 1 + 4, "a sample for each lane and call that took it");
    run(&client, "SET awa_ingest.queue_stripe_count = 1; SELECT awa.enqueue('k', queue => 'p#0')").await;
    assert!(counted(&client).await.contains(&of("p#0", 1, 1, 0)), "a name, where nothing is striped");
}

/// They were counted when they came into the embedded storage.
#[tokio::test(flavor = "multi_thread")]
async fn adopted_jobs_are_not_counted_again() {
    let db = database(Template::Embedded).await;
    let client = db.connect().await;
    run(&client, "SELECT awa.enqueue('k', queue => 'q') FROM generate_series(1, 3)").await;
    db.migrate_awa().await;
    run(&client, "SELECT awa.storage_auto_finalize_if_fresh('awa')").await;
    let adopted: i64 = client.query_one("SELECT ready FROM awa_ingest.adopt()", &[]).await.unwrap().get(0);
    assert_eq!((adopted, counted(&client).await), (3, vec![of("q", 3, 3, 0)]));
}
