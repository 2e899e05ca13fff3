//! The view `awa_ingest.lanes` counts what workers have not claimed, without looking at the jobs.

use crate::problems::{enqueue, provision, sequence};
use awa_ingest_tests::{Db, Storage, Template, Worker, assert_same_rows, failure, jobs, rows};
use awa_model::InsertOpts;
use serde_json::{Value, json};
use tokio_postgres::Client;

/// The same from the jobs themselves: awa's own condition for an available job.
fn counted(storage: Storage) -> String {
    let tombstones =
        "AND NOT EXISTS (SELECT FROM awa.ready_tombstones AS t WHERE (t.queue, t.priority, t.enqueue_shard, t.lane_seq,
        t.ready_slot, t.ready_generation) = (r.queue, r.priority, r.enqueue_shard, r.lane_seq, r.ready_slot, r.ready_generation))";
    format!(
        "(SELECT h.queue, h.priority, h.enqueue_shard AS shard, count(r.job_id) AS waiting, min(r.run_at) AS oldest,
                 (SELECT max(s.created_at) FROM {s}.ready_segments AS s
                   WHERE (s.queue, s.priority, s.enqueue_shard) = (h.queue, h.priority, h.enqueue_shard)) AS last_enqueued
            FROM {s}.queue_claim_heads AS h
            JOIN pg_sequences AS p ON p.schemaname = '{s}' AND p.sequencename = h.seq_name
            LEFT JOIN {s}.ready_entries AS r ON (r.queue, r.priority, r.enqueue_shard) = (h.queue, h.priority, h.enqueue_shard)
                 AND r.lane_seq > COALESCE(p.last_value, 0) {}
           GROUP BY 1, 2, 3)",
        if storage == Storage::Attached { tombstones } else { "" },
        s = storage.schema()
    )
}

async fn lanes(client: &Client) -> Vec<Value> {
    rows(client, "awa_ingest.lanes", &[]).await
}

async fn assert_counted(client: &Client, storage: Storage, when: &str, waiting: i64) {
    let shown = lanes(client).await;
    assert_same_rows(&format!("{when}, {storage:?}"), &rows(client, &counted(storage), &[]).await, &shown);
    let sum: i64 = shown.iter().map(|lane| lane["waiting"].as_i64().expect("a number")).sum();
    assert_eq!(sum, waiting, "{when}, {storage:?}");
}

async fn enqueue_many(client: &Client, queue: &str, count: usize, more: Value) {
    let job = |n: usize| {
        let mut job = json!({"kind": "k", "queue": queue, "args": n});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let batch: Value = (0..count).map(job).collect();
    client.execute("SELECT FROM awa.enqueue_batch($1::jsonb)", &[&batch]).await.expect(queue);
}

/// Batches, single jobs, priorities, shards, stripes, given times, gaps of rolled back producers; deferred jobs wait elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_are_counted_by_lane() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        assert_counted(&client, storage, "no lanes", 0).await;
        provision(&client, "empty").await.unwrap();
        assert_counted(&client, storage, "an empty lane", 0).await;
        enqueue_many(&client, "mail", 10, json!({})).await;
        enqueue_many(&client, "mail", 5, json!({"priority": 1})).await;
        for _ in 0..3 {
            enqueue(&client, "mail").await.unwrap();
        }
        assert_counted(&client, storage, "one queue", 18).await;
        client.batch_execute("BEGIN").await.unwrap();
        enqueue_many(&client, "mail", 4, json!({})).await;
        assert_counted(&client, storage, "one's own open transaction", 22).await;
        assert_counted(&db.connect().await, storage, "somebody else's", 18).await;
        client.batch_execute("ROLLBACK").await.unwrap();
        enqueue_many(&client, "mail", 2, json!({})).await;
        assert_counted(&client, storage, "a gap", 20).await;
        enqueue_many(&client, "mail", 7, json!({"run_at": "2090-01-01T00:00:00Z"})).await;
        assert_counted(&client, storage, "deferred jobs", 20).await;
        enqueue_many(&client, "mail", 3, json!({"run_at": "yesterday", "state": "available"})).await;
        assert_counted(&client, storage, "jobs due long ago", 23).await;
        storage.shard(&client, "sharded", 4).await;
        for shard in 0..4 {
            let ordering_key = Some(jobs::key_of_shard(shard, 4));
            let job = jobs::job_with("k", json!({}), InsertOpts { queue: "sharded".into(), ordering_key, ..Default::default() });
            jobs::enqueue_batch(&client, &vec![job; shard as usize + 1]).await;
        }
        assert_counted(&client, storage, "shards", 33).await;
        client.batch_execute("SET awa_ingest.queue_stripe_count = 3").await.unwrap();
        enqueue_many(&client, "striped", 7, json!({})).await;
        assert_counted(&client, storage, "stripes", 40).await;
        let stripes: Vec<_> =
            lanes(&client).await.into_iter().filter(|lane| lane["queue"].as_str().unwrap().contains('#')).collect();
        assert_eq!(stripes.iter().map(|lane| &lane["queue"]).collect::<Vec<_>>(), ["striped#0", "striped#1", "striped#2"]);
    }
}

/// As the claim cursor moves, also to the middle of a segment and into a gap.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_claimed_does_not_wait() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        enqueue_many(&client, "mail", 5, json!({})).await;
        client.batch_execute("BEGIN").await.unwrap();
        enqueue_many(&client, "mail", 3, json!({})).await;
        client.batch_execute("ROLLBACK").await.unwrap();
        enqueue_many(&client, "mail", 2, json!({})).await;
        let claims = storage.table(&sequence(&client, "claim", "mail").await);
        for (claimed, waiting) in [(1, 6), (4, 3), (5, 2), (6, 2), (8, 2), (9, 1), (10, 0)] {
            client.batch_execute(&format!("SELECT setval('{claims}', {claimed})")).await.unwrap();
            assert_counted(&client, storage, &format!("claimed up to {claimed}"), waiting).await;
        }
    }
}

/// A real worker claims, and awa cancels in the middle of a lane.
#[tokio::test(flavor = "multi_thread")]
async fn awas_workers_and_cancellations_are_followed() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let storage = Storage::Attached;
    enqueue_many(&client, "worked", 12, json!({})).await;
    enqueue_many(&client, "left", 6, json!({})).await;
    let worker = Worker::builder().queue("worked").kind("k").start(&db).await;
    worker.wait_for(12).await;
    worker.stop().await;
    assert_counted(&client, storage, "worked", 6).await;
    enqueue_many(&client, "worked", 4, json!({})).await;
    assert_counted(&client, storage, "new ones", 10).await;

    let pool = db.pool().await;
    let ids = client.query("SELECT job_id FROM awa.ready_entries WHERE queue = 'left' ORDER BY lane_seq", &[]).await.unwrap();
    for (index, waiting) in [(2, 9), (0, 8), (5, 7), (1, 6), (3, 5), (4, 4)] {
        awa_model::admin::cancel(&pool, ids[index].get(0)).await.expect("cancel").expect("a job");
        assert_counted(&client, storage, &format!("cancelled {index}"), waiting).await;
    }
    pool.close().await;
}

/// With single jobs each has a segment of its own: one that is cancelled is not the oldest any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_is_not_the_oldest() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let pool = db.pool().await;
    let first: i64 = client.query_one("SELECT awa.enqueue('k')", &[]).await.unwrap().get(0);
    let middle: i64 = client.query_one("SELECT awa.enqueue('k')", &[]).await.unwrap().get(0);
    client.execute("SELECT awa.enqueue('k')", &[]).await.unwrap();
    for (id, waiting) in [(middle, 2), (first, 1)] {
        awa_model::admin::cancel(&pool, id).await.expect("cancel").expect("a job");
        assert_counted(&client, Storage::Attached, "cancelled", waiting).await;
    }
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_canonical_engine_has_no_lanes() {
    let db = Db::of(Template::AwaCanonical).await;
    let client = db.connect().await;
    client.batch_execute("CREATE EXTENSION awa_ingest; SELECT awa.enqueue('k')").await.unwrap();
    assert_eq!(lanes(&client).await, Vec::<Value>::new());
}

/// One damaged lane does not hide the others.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_counted_is_null() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        for queue in ["a", "b", "c"] {
            enqueue_many(&client, queue, 2, json!({})).await;
        }
        let role = db.role("operator").await;
        client.execute("SELECT awa_ingest.grant_operator($1)", &[&role]).await.unwrap();
        let (first, second) = (sequence(&client, "claim", "a").await, sequence(&client, "claim", "b").await);
        let damage =
            format!("DROP SEQUENCE {}; REVOKE ALL ON SEQUENCE {} FROM {role}", storage.table(&first), storage.table(&second));
        client.batch_execute(&damage).await.unwrap();
        let operator = db.connect_as(&role).await;
        for (client, expected) in [(&client, [json!(null), json!(2), json!(2)]), (&operator, [json!(null), json!(null), json!(2)])]
        {
            let shown = lanes(client).await;
            assert_eq!(shown.iter().map(|lane| lane["waiting"].clone()).collect::<Vec<_>>(), expected, "{storage:?}");
            assert!(
                shown.iter().all(|lane| lane["last_enqueued"].is_string() && lane["waiting"].is_null() == lane["oldest"].is_null())
            );
        }
    }
}

/// A view would run its owner's code with the reader's rights.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_in_the_place_of_a_table_is_refused() {
    let db = Db::awa().await;
    let client = db.connect().await;
    enqueue(&client, "mail").await.unwrap();
    let replace = "ALTER TABLE awa.ready_tombstones RENAME TO hidden; CREATE VIEW awa.ready_tombstones AS SELECT * FROM awa.hidden";
    client.batch_execute(replace).await.unwrap();
    assert_eq!(failure(client.query("SELECT * FROM awa_ingest.lanes", &[]).await).sqlstate, "55000");
}

/// Thousands of sequences would fill the lock table, and a repair would wait for who has looked at them.
#[tokio::test(flavor = "multi_thread")]
async fn sequences_are_read_without_a_lock_that_stays() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        enqueue_many(&client, "mail", 2, json!({})).await;
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(lanes(&client).await.len(), 1);
        let locks = "(SELECT c.relname, l.mode FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
            WHERE l.pid = pg_backend_pid() AND (c.relkind = 'S' OR l.mode <> 'AccessShareLock'))";
        assert_eq!(rows(&client, locks, &[]).await, Vec::<Value>::new(), "{storage:?}");
    }
}

/// The position of a sequence is for who may read it.
#[tokio::test(flavor = "multi_thread")]
async fn positions_are_those_that_come_next() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    client.batch_execute("CREATE SEQUENCE public.s START WITH 7; CREATE TABLE public.t (i int)").await.unwrap();
    let position = async |client: &Client, name: &str| -> Option<i64> {
        client.query_one(&format!("SELECT awa_ingest.sequence_position({name})"), &[]).await.unwrap().get(0)
    };
    assert_eq!(position(&client, "'public.s'").await, Some(7));
    client.batch_execute("SELECT nextval('public.s')").await.unwrap();
    assert_eq!(position(&client, "'public.s'").await, Some(8));
    client.batch_execute("SELECT setval('public.s', 20, false)").await.unwrap();
    assert_eq!(position(&client, "'public.s'").await, Some(20));
    for none in ["'public.t'", "NULL", "0", "4294967295"] {
        assert_eq!(position(&client, none).await, None, "{none}");
    }
    let role = db.role("reader").await;
    let reader = db.connect_as(&role).await;
    let grant = format!("GRANT USAGE ON SCHEMA awa_ingest TO {role}");
    client.batch_execute(&grant).await.unwrap();
    let refused = failure(reader.query("SELECT awa_ingest.sequence_position('public.s')", &[]).await);
    assert_eq!(refused.sqlstate, "42501", "EXECUTE is not PUBLIC");
    client.batch_execute(&format!("GRANT EXECUTE ON FUNCTION awa_ingest.sequence_position(regclass) TO {role}")).await.unwrap();
    assert_eq!(position(&reader, "'public.s'").await, None);
    for privilege in ["SELECT", "USAGE"] {
        client.batch_execute(&format!("GRANT {privilege} ON SEQUENCE public.s TO {role}")).await.unwrap();
        assert_eq!(position(&reader, "'public.s'").await, Some(20), "{privilege}");
        client.batch_execute(&format!("REVOKE ALL ON SEQUENCE public.s FROM {role}")).await.unwrap();
    }
}

/// SELECT on the view is not enough: it shows what its reader may see.
#[tokio::test(flavor = "multi_thread")]
async fn the_readers_rights_count() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        enqueue(&client, "mail").await.unwrap();
        let role = db.role("reader").await;
        let reader = db.connect_as(&role).await;
        let select = "SELECT * FROM awa_ingest.lanes";
        for grant in [
            "SELECT ON awa_ingest.lanes".to_owned(),
            "EXECUTE ON FUNCTION awa_ingest.lane_states()".to_owned(),
            "EXECUTE ON FUNCTION awa_ingest.sequence_position(regclass)".to_owned(),
            format!("SELECT ON {}, {}", storage.table("queue_enqueue_heads"), storage.table("queue_claim_heads")),
        ] {
            assert_eq!(failure(reader.query(select, &[]).await).sqlstate, "42501", "before {grant}");
            client
                .batch_execute(&format!("GRANT USAGE ON SCHEMA awa, awa_ingest TO {role}; GRANT {grant} TO {role}"))
                .await
                .unwrap();
        }
        assert_eq!(failure(reader.query(select, &[]).await).sqlstate, "42501", "no segments yet, {storage:?}");
    }
}
