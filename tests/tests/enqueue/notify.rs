//! Who is woken: one empty notification for each queue with ready rows, when they are committed.

use awa_ingest_tests::{Db, Notifications, Storage};
use serde_json::{Value, json};
use tokio_postgres::Client;

async fn enqueue(client: &Client, batch: Value) {
    client.execute("SELECT awa.enqueue_batch($1::jsonb, 'skip')", &[&batch]).await.expect("awa.enqueue_batch");
}

/// A session that listens on the channels of several queues.
struct Listener {
    client: Client,
    notifications: Notifications,
}

impl Listener {
    async fn on(db: &Db, queues: &[&str]) -> Self {
        let (client, notifications) = db.listen(&format!("awa:{}", queues[0])).await;
        for queue in &queues[1..] {
            client.batch_execute(&format!("LISTEN \"awa:{}\"", queue.replace('"', "\"\""))).await.expect("LISTEN");
        }
        Self { client, notifications }
    }

    /// The channels notified by everything that is committed so far, sorted, each as often as it came. All payloads must be empty.
    async fn heard(&mut self) -> Vec<String> {
        // What this session sends itself comes behind everything committed before.
        self.client.batch_execute("LISTEN fence; NOTIFY fence").await.expect("NOTIFY");
        let mut heard = Vec::new();
        loop {
            let notification = self.notifications.next().await;
            if notification.channel() == "fence" {
                break;
            }
            assert_eq!(notification.payload(), "", "{}", notification.channel());
            heard.push(notification.channel().to_owned());
        }
        heard.sort();
        heard
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_queue_with_ready_rows_is_woken_once() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        storage.shard(&client, "b", 4).await;
        let mut listener = Listener::on(&db, &["a", "b", "default", "later", "odd \"q\"", ""]).await;
        let job = |n: usize| {
            let queue = ["a", "b"][n % 2];
            json!({"kind": "k", "queue": queue, "priority": 1 + n % 4, "ordering_key": n.to_string()})
        };
        let mut batch: Vec<Value> = (0..50).map(job).collect();
        batch.extend([json!({"kind": "k"}), json!({"kind": "k", "queue": "odd \"q\""}), json!({"kind": "k", "queue": ""})]);
        batch.extend([
            json!({"kind": "k", "queue": "later", "run_at": "now"}),
            json!({"kind": "k", "queue": "later", "state": "retryable"}),
        ]);
        enqueue(&client, Value::Array(batch)).await;
        assert_eq!(listener.heard().await, ["awa:", "awa:a", "awa:b", "awa:default", "awa:odd \"q\""], "{storage:?}");

        // Due already, but deferred: whoever promotes it wakes the worker. A time alone defers nothing.
        enqueue(&client, json!([{"kind": "k", "queue": "a", "run_at": "1999-01-01"}, {"kind": "k", "queue": "b", "state": "available", "run_at": "tomorrow"}])).await;
        assert_eq!(listener.heard().await, ["awa:b"], "{storage:?}");
        client.batch_execute("SELECT awa.enqueue('k'); SELECT awa.enqueue('k', run_at => now())").await.unwrap();
        client.batch_execute("SELECT awa.enqueue_columns('{k,k}', queue => '{a,b}')").await.unwrap();
        assert_eq!(listener.heard().await, ["awa:a", "awa:b", "awa:default"], "{storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commit_wakes_and_a_rollback_does_not() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let mut listener = Listener::on(&db, &["a", "b", "c"]).await;
        let on = |queue: &str| json!([{"kind": "k", "queue": queue}]);

        client.batch_execute("BEGIN").await.unwrap();
        enqueue(&client, on("a")).await;
        assert_eq!(listener.heard().await, Vec::<String>::new(), "not before the commit");
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(listener.heard().await, Vec::<String>::new(), "nor after a rollback");

        client.batch_execute("BEGIN").await.unwrap();
        enqueue(&client, on("a")).await;
        client.batch_execute("SAVEPOINT s").await.unwrap();
        enqueue(&client, on("b")).await;
        client.batch_execute("ROLLBACK TO s").await.unwrap();
        enqueue(&client, on("c")).await;
        enqueue(&client, on("c")).await;
        client.batch_execute("SAVEPOINT t").await.unwrap();
        enqueue(&client, on("a")).await;
        client.batch_execute("RELEASE t; COMMIT").await.unwrap();
        assert_eq!(listener.heard().await, ["awa:a", "awa:c"], "once a transaction, {storage:?}");
    }
}

/// A job that is skipped wakes nobody.
#[tokio::test(flavor = "multi_thread")]
async fn skipped_jobs_wake_nobody() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let mut listener = Listener::on(&db, &["a", "b"]).await;
        let once = json!([{"kind": "once", "queue": "a", "unique": true}]);
        enqueue(&client, once.clone()).await;
        assert_eq!(listener.heard().await, ["awa:a"]);
        enqueue(&client, once.clone()).await;
        assert_eq!(listener.heard().await, Vec::<String>::new());
        enqueue(&client, json!([once[0], {"kind": "k", "queue": "b"}])).await;
        assert_eq!(listener.heard().await, ["awa:b"], "{storage:?}");
    }
}

/// Workers of a striped queue listen for the queue, whichever stripe its jobs went to.
#[tokio::test(flavor = "multi_thread")]
async fn striped_queues_are_woken_by_their_own_name() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        let mut listener = Listener::on(&db, &["q", "q#0", "q#1", "q#2", "plain", "plain#0"]).await;
        let batch = |queue: &str| Value::Array(vec![json!({"kind": "k", "queue": queue}); 3]);

        client.batch_execute("SET awa_ingest.queue_stripe_count = '3'").await.unwrap();
        enqueue(&client, batch("q")).await;
        assert_eq!(listener.heard().await, ["awa:q"], "{storage:?}");
        enqueue(&client, batch("q#1")).await;
        assert_eq!(listener.heard().await, ["awa:q"], "a stripe by its name, {storage:?}");

        // By the lanes that exist: q is striped now, and nobody says whether a worker knows.
        client.batch_execute("SET awa_ingest.queue_stripe_count = 'auto'").await.unwrap();
        enqueue(&client, json!([{"kind": "k", "queue": "q"}, {"kind": "k", "queue": "plain"}])).await;
        assert_eq!(listener.heard().await, ["awa:plain", "awa:q"], "{storage:?}");
        enqueue(&client, batch("q#1")).await;
        assert!(listener.heard().await.contains(&"awa:q".to_owned()), "{storage:?}");

        client.batch_execute("SET awa_ingest.queue_stripe_count = '1'").await.unwrap();
        enqueue(&client, batch("plain#0")).await;
        assert_eq!(listener.heard().await, ["awa:plain#0"], "without stripes it is a name like any other, {storage:?}");
    }
}

/// LISTEN cuts a name at 63 bytes, between characters; whoever listens with the whole name hears.
#[tokio::test(flavor = "multi_thread")]
async fn long_names_are_cut_as_listen_cuts_them() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let client = db.connect().await;
        for letter in ["q", "ü", "€", "🐘"] {
            for length in [14, 15, 19, 20, 29, 30, 31, 58, 59, 60, 61, 200] {
                let queue = letter.repeat(length);
                let mut listener = Listener::on(&db, &[&queue]).await;
                let channel: String = listener.client.query_one("SELECT pg_listening_channels()", &[]).await.unwrap().get(0);
                enqueue(&client, json!([{"kind": "k", "queue": queue}])).await;
                assert_eq!(listener.heard().await, [channel], "{length} {letter}, {storage:?}");
            }
        }
        // Two queues that are cut to the same channel wake it once.
        let (one, two) = (format!("{}1", "x".repeat(80)), format!("{}2", "x".repeat(80)));
        let mut listener = Listener::on(&db, &[&one]).await;
        enqueue(&client, json!([{"kind": "k", "queue": one}, {"kind": "k", "queue": two}])).await;
        assert_eq!(listener.heard().await.len(), 1, "{storage:?}");
    }
}
