//! Who is woken by calls of the function: each queue with ready jobs, once a transaction, when it commits.

use awa_ingest_tests::{Db, Notifications};
use tokio_postgres::Client;

use crate::setup::{attached, engine, insert, run};

const QUEUES: [&str; 5] = ["a", "b", "default", "odd \"q\"", "later"];

struct Listener {
    client: Client,
    notifications: Notifications,
}

impl Listener {
    async fn on(db: &Db) -> Self {
        let (client, notifications) = db.listen("fence").await;
        for queue in QUEUES {
            run(&client, &format!("LISTEN \"awa:{}\"", queue.replace('"', "\"\""))).await;
        }
        Self { client, notifications }
    }

    /// The queues notified by what is committed so far, sorted, each as often as it came.
    async fn heard(&mut self) -> Vec<String> {
        // What this session sends itself comes behind everything committed before.
        run(&self.client, "NOTIFY fence").await;
        let mut heard = Vec::new();
        loop {
            let notification = self.notifications.next().await;
            if notification.channel() == "fence" {
                heard.sort();
                return heard;
            }
            assert_eq!(notification.payload(), "", "{}", notification.channel());
            heard.push(notification.channel().strip_prefix("awa:").expect("awa's prefix").to_owned());
        }
    }
}

/// Statements, and whom awa's function wakes through them on queue storage. On the canonical engine its jobs are due a moment after their
/// transaction began, so that awa's trigger wakes nobody for them; the replacement's are due at once.
const STATEMENTS: [(&str, &[&str]); 9] = [
    ("SELECT awa.insert_job_compat('k')", &["default"]),
    ("SELECT awa.insert_job_compat('k', 'a') FROM generate_series(1, 100)", &["a"]),
    (
        "SELECT awa.insert_job_compat('k', (ARRAY['a', 'b'])[1 + n % 2], p_priority => (1 + n % 4)::smallint) FROM generate_series(1, 20) AS n",
        &["a", "b"],
    ),
    (
        "SELECT awa.insert_job_compat('k', 'a', p_state => 'scheduled'), awa.insert_job_compat('k', 'b', p_state => 'retryable')",
        &[],
    ),
    (
        "SELECT awa.insert_job_compat('k', 'a', p_run_at => now() + interval '9 days'), awa.insert_job_compat('k', 'b', p_run_at => now() - interval '9 days')",
        &["a", "b"],
    ),
    (
        "BEGIN; SELECT awa.insert_job_compat('k', 'a'); SELECT awa.insert_job_compat('k', 'odd \"q\"'); SELECT awa.insert_job_compat('k', 'a'); COMMIT",
        &["a", "odd \"q\""],
    ),
    ("BEGIN; SELECT awa.insert_job_compat('k', 'a'); ROLLBACK", &[]),
    (
        "BEGIN; SELECT awa.insert_job_compat('k', 'a'); SAVEPOINT s; SELECT awa.insert_job_compat('k', 'b'); ROLLBACK TO s; SELECT awa.insert_job_compat('k'); COMMIT",
        &["a", "default"],
    ),
    (
        "BEGIN; SAVEPOINT s; SELECT awa.insert_job_compat('k', 'b'); ROLLBACK TO s; SELECT awa.insert_job_compat('k', 'b'); COMMIT",
        &["b"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_woken_as_by_awas_function() {
    for state in ["active", "mixed_transition", "canonical", "prepared"] {
        let databases = [Db::awa().await, attached().await];
        let [mut original, mut replaced] = [Listener::on(&databases[0]).await, Listener::on(&databases[1]).await];
        let clients = [databases[0].connect().await, databases[1].connect().await];
        for client in &clients {
            run(client, &engine(state)).await;
        }
        for (statement, queue_storage) in STATEMENTS {
            for client in &clients {
                run(client, statement).await;
            }
            let (awas, ours) = (original.heard().await, replaced.heard().await);
            if matches!(state, "active" | "mixed_transition") {
                assert_eq!(
                    (&ours, &awas),
                    (&awas, &queue_storage.iter().map(|q| (*q).to_owned()).collect()),
                    "{state}: {statement}"
                );
            } else {
                let due = queue_storage.iter().filter(|queue| !statement.contains("now() + ") || **queue != "a");
                assert_eq!(ours, due.map(|q| (*q).to_owned()).collect::<Vec<_>>(), "{state}: {statement}");
                assert!(awas.iter().all(|queue| ours.contains(queue)), "{state}: {statement}: {awas:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_woken_before_the_commit() {
    let db = attached().await;
    let mut listener = Listener::on(&db).await;
    let client = db.connect().await;
    run(&client, "BEGIN").await;
    insert(&client, "'k', 'a'").await;
    assert_eq!(listener.heard().await, Vec::<String>::new());
    run(&client, "COMMIT").await;
    assert_eq!(listener.heard().await, ["a"]);
}
