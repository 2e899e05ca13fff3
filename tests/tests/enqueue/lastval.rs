//! What `lastval()` says in a session that enqueues.

use awa_ingest_tests::Storage;
use tokio_postgres::Client;

async fn value(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// It is the id of the last job, as an identity column would have it, and never a position in a lane.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_the_id_of_the_last_job() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        let ids = format!("SELECT last_value FROM {}.job_id_seq", storage.schema());
        let mut ways = vec![
            "SELECT awa.enqueue('k')",
            "SELECT count(*) FROM awa.enqueue_batch('[{\"kind\": \"k\"}, {\"kind\": \"k\"}, {\"kind\": \"k\", \"queue\": \"q\"}]')",
            "WITH job AS (INSERT INTO awa.ingest_skip_conflicts (kind) VALUES ('k') RETURNING job_id) SELECT job_id FROM job",
        ];
        if storage == Storage::Attached {
            client.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
            ways.push("SELECT id FROM awa.insert_job_compat('k', 'q', '{}')");
        }
        // Positions that are no ids, so that they can be told apart.
        client.batch_execute("SELECT awa.enqueue('k'); SELECT awa.enqueue('k', queue => 'q')").await.unwrap();
        client.batch_execute(&format!("SELECT setval('{}.job_id_seq', 1000)", storage.schema())).await.unwrap();
        for way in ways {
            value(&client, way).await;
            let last = value(&client, "SELECT lastval()").await;
            assert_eq!(last, value(&client, &ids).await, "{way}, {storage:?}");
            assert!(last > 1000, "{way}, {storage:?}");
        }
    }
}

/// Positions go on where they were, whoever took them in between: awa's own function takes them by nextval.
#[tokio::test(flavor = "multi_thread")]
async fn positions_follow_those_of_others() {
    let client = Storage::Attached.db().await.connect().await;
    for _ in 0..3 {
        client.batch_execute("SELECT awa.enqueue('k', queue => 'q'); SELECT awa.insert_job_compat('k', 'q', '{}')").await.unwrap();
        client
            .batch_execute(r#"SELECT awa.enqueue_batch('[{"kind": "k", "queue": "q"}, {"kind": "k", "queue": "q"}]')"#)
            .await
            .unwrap();
    }
    let positions =
        "SELECT array_agg(lane_seq ORDER BY job_id) = ARRAY(SELECT generate_series(1::bigint, 12)) FROM awa.ready_entries";
    assert!(client.query_one(positions, &[]).await.unwrap().get::<_, bool>(0));
}

/// Without UPDATE on a lane's sequence one position can be taken at a time, as by nextval.
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_enough_for_one_job() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        client.batch_execute("SELECT awa.enqueue('k', queue => 'q')").await.unwrap();
        let role = db.role("producer").await;
        client.execute("SELECT awa_ingest.grant_producer($1)", &[&role]).await.unwrap();
        let revoke = format!(
            "DO $$ BEGIN EXECUTE format('REVOKE UPDATE ON SEQUENCE {}.queue_enqueue_seq_%s FROM {role}', md5('q:2:0')); END $$",
            storage.schema()
        );
        client.batch_execute(&revoke).await.unwrap();
        let producer = db.connect_as(&role).await;
        producer.batch_execute("SELECT awa.enqueue('k', queue => 'q')").await.unwrap();
        let two = r#"SELECT awa.enqueue_batch('[{"kind": "k", "queue": "q"}, {"kind": "k", "queue": "q"}]')"#;
        assert_eq!(awa_ingest_tests::failure(producer.batch_execute(two).await).sqlstate, "42501", "{storage:?}");
    }
}
