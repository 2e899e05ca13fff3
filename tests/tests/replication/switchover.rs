//! Switching over to a subscriber, as the page on operations says.

use awa_ingest_tests::{Template, Worker, jobs};
use serde_json::json;
use std::process::Stdio;

use crate::support::Side;

const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// The query that prints statements for sequences.
fn sequences() -> String {
    let section = OPERATIONS.split("\n**Switching over**").nth(1).expect("the section");
    section.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).expect("its query").to_owned()
}

/// A database with the publisher's schema, and no rows but those that CREATE EXTENSION makes.
async fn with_the_schema_of(publisher: &Side) -> Side {
    let subscriber = Side::bare().await;
    let cluster = publisher.db.cluster();
    let mut dump =
        cluster.program("pg_dump").args(["--schema-only", publisher.db.name()]).stdout(Stdio::piped()).spawn().expect("pg_dump");
    let mut psql = cluster.program("psql");
    psql.args(["--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null", subscriber.db.name()]);
    let restored = psql.stdin(dump.stdout.take().expect("its output")).status().expect("psql");
    assert!(dump.wait().expect("pg_dump").success() && restored.success());
    subscriber
}

/// Copies what logical replication does not.
async fn copy_sequences(publisher: &Side, subscriber: &Side) {
    for row in publisher.client.query(&sequences(), &[]).await.expect("the statements") {
        subscriber.run(row.get(0)).await;
    }
    subscriber.run(&format!("DROP SUBSCRIPTION {}", subscriber.subscription())).await;
    subscriber
        .run("SELECT awa_ingest.repair_lane_sequence(schema_name, sequence_name) FROM awa_ingest.lane_sequence_problems()")
        .await;
    let problems = "SELECT string_agg(detail, '; ') FROM awa_ingest.lane_sequence_problems()";
    assert_eq!(subscriber.value::<Option<String>>(problems).await, None);
}

async fn enqueue(side: &Side, queues: &[&str]) {
    for queue in queues {
        for n in 0..3 {
            let opts = awa_model::InsertOpts { queue: (*queue).into(), ..Default::default() };
            jobs::enqueue_batch(&side.client, &[jobs::job_with("step", json!(n), opts)]).await;
        }
    }
}

const STATES: &str = "SELECT string_agg(concat_ws(' ', queue, waiting), ', ' ORDER BY queue) FROM awa_ingest.lanes";

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_storage() {
    let publisher = Side::new(Template::Embedded).await;
    enqueue(&publisher, &["old"]).await;
    publisher.publish("").await;
    let subscriber = with_the_schema_of(&publisher).await;
    subscriber.subscribe(&publisher, "").await;
    subscriber.catch_up(&publisher).await;
    enqueue(&publisher, &["old", "new"]).await;
    subscriber.catch_up(&publisher).await;
    copy_sequences(&publisher, &subscriber).await;
    enqueue(&subscriber, &["old", "new", "newest"]).await;
    assert_eq!(subscriber.value::<String>(STATES).await, "new 6, newest 3, old 9");
    let ids = "SELECT count(*) = count(DISTINCT job_id) FROM awa_ingest.ready_entries";
    assert!(subscriber.value::<bool>(ids).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn awas_storage() {
    let publisher = Side::new(Template::Awa).await;
    enqueue(&publisher, &["old"]).await;
    let worked = worker(&["old"]).start(&publisher.db).await;
    worked.wait_for(3).await;
    worked.stop().await;
    publisher.publish("").await;
    let subscriber = with_the_schema_of(&publisher).await;
    subscriber.subscribe(&publisher, "").await;
    subscriber.catch_up(&publisher).await;
    enqueue(&publisher, &["old", "new"]).await;
    subscriber.catch_up(&publisher).await;
    copy_sequences(&publisher, &subscriber).await;
    assert_eq!(subscriber.value::<String>(STATES).await, "new 3, old 3");
    enqueue(&subscriber, &["old", "new", "newest"]).await;
    let worked = worker(&["old", "new", "newest"]).start(&subscriber.db).await;
    worked.wait_for(15).await;
    assert_eq!(worked.stop().await.len(), 15, "each once");
}

fn worker(queues: &[&str]) -> awa_ingest_tests::WorkerBuilder {
    queues.iter().fold(Worker::builder().kind("step"), |builder, queue| builder.queue(queue))
}
