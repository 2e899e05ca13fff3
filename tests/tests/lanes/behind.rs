//! Sequences that are behind what they handed out: restored, replicated or set back. Refused, listed, repaired; never handed out again.

use crate::problems::{Problem, databases, enqueue, fix_as_printed, problem, problems, repair, sequence};
use awa_ingest_tests::{
    Db, Storage, Template, Worker, assert_lanes_intact, backend_pid, failure, jobs, rows, wait_until_blocked, within,
};
use serde_json::{Value, json};
use tokio_postgres::Client;

async fn set_back(client: &Client, storage: Storage, name: &str, next: i64) {
    let set = format!("SELECT setval('{}', {next}, false)", storage.table(name));
    client.execute(&set, &[]).await.expect(&set);
}

async fn fill(client: &Client, count: usize) {
    for _ in 0..count {
        enqueue(client, "mail").await.unwrap();
    }
}

/// The ring moves on: what was handed out is in another slot, where no index knows of it.
async fn turn(client: &Client, storage: Storage) {
    let state = storage.table("queue_ring_state");
    client
        .batch_execute(&format!("UPDATE {state} SET current_slot = current_slot + 1, generation = generation + 1"))
        .await
        .unwrap();
}

async fn stored(client: &Client, storage: Storage) -> (Value, Value) {
    let sql = format!(
        "(SELECT array_agg(lane_seq ORDER BY lane_seq) AS seqs, count(DISTINCT job_id) AS ids FROM {})",
        storage.table("ready_entries")
    );
    let row = rows(client, &sql, &[]).await.remove(0);
    (row["seqs"].clone(), row["ids"].clone())
}

/// Every way in is refused, with the statement that repairs it, which then does.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_not_begun_again() {
    for (storage, db, _) in databases().await {
        let client = db.connect().await;
        fill(&client, 3).await;
        let name = sequence(&client, "enqueue", "mail").await;
        for turned in [false, true] {
            if turned {
                turn(&client, storage).await;
            }
            let positions = stored(&client, storage).await;
            set_back(&client, storage, &name, 2).await;
            // A session that has been there, and a new one.
            for session in [&client, &db.connect().await] {
                for way in [
                    "SELECT awa.enqueue('k', queue => 'mail')",
                    "INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'other'), ('k', 'mail')",
                    r#"SELECT * FROM awa.enqueue_batch('[{"kind": "k", "queue": "mail", "unique": {}}, {"kind": "k", "queue": "a"}]', 'skip')"#,
                ] {
                    let refused = failure(session.execute(way, &[]).await);
                    assert_eq!(refused.sqlstate, "55000", "{way}, {storage:?}: {refused:?}");
                    assert!(refused.message.contains("lane (queue \"mail\", priority 2, shard 0) is damaged"), "{refused:?}");
                    let statement = format!("SELECT awa_ingest.repair_lane_sequence('{}', '{name}')", storage.schema());
                    assert!(refused.hint.contains(&statement), "{refused:?}");
                }
            }
            assert_eq!(stored(&client, storage).await, positions, "nothing was written");
            let next = "SELECT awa_ingest.sequence_position($1::text::regclass)";
            assert_eq!(client.query_one(next, &[&storage.table(&name)]).await.unwrap().get::<_, i64>(0), 2, "nothing was taken");
            let found = problem(&client).await;
            assert_eq!((found.problem.as_str(), &found.sequence), ("behind", &name), "{found:?}");
            assert!(found.able.contains(&"postgres".to_owned()), "{found:?}");
            if turned {
                fix_as_printed(&db, &found).await;
            } else {
                assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "repaired");
            }
            assert_eq!(problems(&client).await, [] as [Problem; 0]);
            assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "nothing_to_do");
            enqueue(&client, "mail").await.unwrap();
        }
        assert_eq!(stored(&client, storage).await, (json!([1, 2, 3, 4, 5]), json!(5)));
        assert_lanes_intact(&client, storage.schema(), "repaired").await;
    }
}

/// Where the ring is empty, the claim cursor says how far the lane had come: new jobs before it would never be worked.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_not_put_before_the_claim_cursor() {
    let db = Storage::Attached.db().await;
    let client = db.connect().await;
    fill(&client, 3).await;
    let worker = Worker::builder().queue("mail").kind("k").start(&db).await;
    worker.wait_for(3).await;
    let cursor = format!("SELECT awa.sequence_next_value('{}') = 4", sequence(&client, "claim", "mail").await);
    awa_ingest_tests::wait_until(&client, &cursor).await;
    client.batch_execute("TRUNCATE awa.ready_entries, awa.ready_segments").await.unwrap();
    let name = sequence(&client, "enqueue", "mail").await;
    set_back(&client, Storage::Attached, &name, 1).await;
    // A producer who may read nothing but what is granted.
    let role = db.role("producer").await;
    client.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.unwrap();
    for session in [&client, &db.connect_as(&role).await] {
        assert_eq!(failure(enqueue(session, "mail").await).sqlstate, "55000");
    }
    assert_eq!(problem(&client).await.sequence, name);
    assert_eq!(repair(&client, "awa", &name).await.unwrap(), "repaired");
    enqueue(&client, "mail").await.unwrap();
    worker.wait_for(4).await;
    worker.stop().await;
}

/// A producer who may not look at segments finds out by the index that refuses the position. For awa's clients, whose function is
/// replaced, 23505 would be a job that is not unique.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_refuses_is_explained() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        fill(&client, 3).await;
        let name = sequence(&client, "enqueue", "mail").await;
        let role = db.role("producer").await;
        client.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.unwrap();
        client.batch_execute(&format!("REVOKE SELECT ON {} FROM {role}", storage.table("ready_segments"))).await.unwrap();
        let mut ways =
            vec!["SELECT awa.enqueue('k', queue => 'mail')", "INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'mail')"];
        if storage == Storage::Attached {
            client.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
            ways.push("SELECT awa.insert_job_compat('k', 'mail', '{}')");
        }
        let producer = db.connect_as(&role).await;
        for way in ways {
            set_back(&client, storage, &name, 2).await;
            let refused = failure(producer.execute(way, &[]).await);
            assert_eq!((refused.sqlstate.as_str(), refused.constraint.as_str()), ("55000", ""), "{way}, {storage:?}: {refused:?}");
            assert!(refused.hint.contains("awa_ingest.repair_lane_sequence"), "{refused:?}");
        }
        assert_eq!(stored(&client, storage).await, (json!([1, 2, 3]), json!(3)));
    }
}

/// awa's own clients, whose function is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn awas_client_is_told_so() {
    let db = Storage::Attached.db().await;
    let client = db.connect().await;
    client.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
    fill(&client, 3).await;
    set_back(&client, Storage::Attached, &sequence(&client, "enqueue", "mail").await, 1).await;
    let opts = awa_model::InsertOpts { queue: "mail".into(), ..Default::default() };
    let pool = db.pool().await;
    let refused = awa_model::insert_many(&pool, &[jobs::job_with("k", json!({}), opts)]).await.expect_err("damaged");
    let awa_model::AwaError::Database(refused) = refused else { panic!("a unique conflict: {refused:?}") };
    assert_eq!(refused.as_database_error().and_then(|error| error.code()).as_deref(), Some("55000"));
}

/// Ids are drawn without a look, and handed out twice where the sequence is behind: that is listed, and repaired.
#[tokio::test(flavor = "multi_thread")]
async fn ids_are_not_handed_out_twice_for_long() {
    for (storage, db, _) in databases().await {
        let client = db.connect().await;
        fill(&client, 3).await;
        set_back(&client, storage, "job_id_seq", 2).await;
        let found = problem(&client).await;
        assert_eq!((found.problem.as_str(), found.sequence.as_str()), ("behind", "job_id_seq"), "{found:?}");
        assert!(found.able.contains(&"postgres".to_owned()) && found.detail.contains("ids below 4"), "{found:?}");
        let status = "SELECT ready, problem FROM awa_ingest.status()";
        let row = client.query_one(status, &[]).await.unwrap();
        assert!(!row.get::<_, bool>(0) && row.get::<_, &str>(1).contains("job_id_seq"), "{row:?}");
        // Whoever has drawn ids is waited for, and that not for long.
        let producer = db.connect().await;
        producer.batch_execute("BEGIN; SELECT awa.enqueue('k', queue => 'mail')").await.unwrap();
        assert_eq!(repair(&client, storage.schema(), "job_id_seq").await.unwrap(), "busy");
        producer.batch_execute("ROLLBACK").await.unwrap();
        fix_as_printed(&db, &found).await;
        enqueue(&client, "mail").await.unwrap();
        assert_eq!(stored(&client, storage).await, (json!([1, 2, 3, 5]), json!(4)), "{storage:?}");
        let row = client.query_one(status, &[]).await.unwrap();
        assert!(row.get::<_, bool>(0), "{row:?}");
    }
}

/// An id of a deferred job, and of the canonical engine: there an index refuses it.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_refused_is_explained() {
    let canonical = Db::of(Template::AwaCanonical).await;
    canonical.connect().await.batch_execute("CREATE EXTENSION awa_ingest").await.unwrap();
    let cases = [
        (Storage::Embedded.db().await, "awa_ingest", "job_id_seq", ", run_at => now() + '1 day'"),
        (Storage::Attached.db().await, "awa", "job_id_seq", ", run_at => now() + '1 day'"),
        (canonical, "awa", "jobs_id_seq", ""),
    ];
    for (db, schema, name, run_at) in cases {
        let client = db.connect().await;
        let call = format!("SELECT awa.enqueue('k'{run_at})");
        client.execute(&call, &[]).await.expect(&call);
        client.execute(&format!("SELECT setval('{schema}.{name}', 1, false)"), &[]).await.unwrap();
        let refused = failure(client.execute(&call, &[]).await);
        assert_eq!(refused.sqlstate, "55000", "{schema}.{name}: {refused:?}");
        assert!(refused.hint.contains(&format!("repair_lane_sequence('{schema}', '{name}')")), "{refused:?}");
        client.execute(&format!("SELECT setval('{schema}.{name}', 1, false)"), &[]).await.unwrap();
        assert_eq!(problem(&client).await.sequence, name);
        assert_eq!(repair(&client, schema, name).await.unwrap(), "repaired");
        client.execute(&call, &[]).await.expect(&call);
    }
}

/// A repair waits for the lane's producers, whose jobs it does not see yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_comes_after_open_producers() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (client, holder) = (db.connect().await, db.connect().await);
        fill(&client, 3).await;
        let name = sequence(&client, "enqueue", "mail").await;
        set_back(&client, storage, &name, 1).await;
        let lock = format!("SELECT pg_advisory_xact_lock(hashtextextended('{}', 0))", storage.table(&name));
        holder.batch_execute(&format!("BEGIN; {lock}")).await.unwrap();
        assert_eq!(repair(&client, storage.schema(), &name).await.unwrap(), "busy");
        let pid = backend_pid(&client).await;
        client.batch_execute("SET lock_timeout = 0").await.unwrap();
        let waiting = tokio::spawn(async move { enqueue(&client, "mail").await });
        wait_until_blocked(&holder, pid).await;
        holder.batch_execute("COMMIT").await.unwrap();
        assert_eq!(failure(within("the call", waiting).await.unwrap()).sqlstate, "55000");
    }
}

/// What the caller has no right to move is not moved.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_refused() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        fill(&client, 3).await;
        let (operator, name) = (db.role("operator").await, sequence(&client, "enqueue", "mail").await);
        client.execute("SELECT awa_ingest.grant_operator($1)", &[&operator]).await.unwrap();
        set_back(&client, storage, &name, 1).await;
        set_back(&client, storage, "job_id_seq", 1).await;
        let session = db.connect_as(&operator).await;
        assert_eq!(problems(&session).await.len(), 2, "{storage:?}");
        assert_eq!(failure(repair(&session, storage.schema(), "job_id_seq").await).sqlstate, "42501");
        assert_eq!(repair(&session, storage.schema(), &name).await.unwrap(), "repaired");
        for other in ["jobs_id_seq", "no_such", "queue_ring_state"] {
            assert_eq!(failure(repair(&session, storage.schema(), other).await).sqlstate, "22023", "{other}");
        }
    }
}
