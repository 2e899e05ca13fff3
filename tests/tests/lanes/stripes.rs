//! Without a stripe setting, jobs go where a queue's lanes are: to its stripes, or to the queue itself.

use awa_ingest_tests::{Storage, rows};
use serde_json::{Value, json};
use tokio_postgres::Client;

async fn provision(client: &Client, queue: &str) {
    let sql = "SELECT awa_ingest.provision_lane($1, 2::smallint, 0::smallint)";
    client.execute(sql, &[&queue]).await.expect(queue);
}

/// Sends ten jobs, and returns the stored queues they went to.
async fn send_ten(client: &Client, storage: Storage, queue: &str) -> Vec<Value> {
    let batch: Value = (0..10).map(|n| json!({"kind": queue, "queue": queue, "args": n})).collect();
    client.execute("SELECT awa.enqueue_batch($1::jsonb)", &[&batch]).await.expect(queue);
    let stored = format!("(SELECT queue FROM {} WHERE kind = '{queue}')", storage.table("ready_entries"));
    rows(client, &stored, &[]).await.into_iter().map(|row| row["queue"].clone()).collect()
}

/// The first eight stripes are all that a look-up for one job asks for: one that lies further back must not be missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_stripe_is_found() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("SET awa_ingest.queue_stripe_count = 'auto'").await.unwrap();
        for (queue, last) in [("zz", 9), ("yy", 8), ("xx", 63)] {
            provision(&client, &format!("{queue}#{last}")).await;
            let mut expected: Vec<Value> = (0..10).map(|n| json!(format!("{queue}#{}", n % (last + 1)))).collect();
            let mut found = send_ten(&client, storage, queue).await;
            for names in [&mut found, &mut expected] {
                names.sort_by_key(Value::to_string);
            }
            assert_eq!(found, expected, "{queue}, {storage:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_queue_stays_plain() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("SET awa_ingest.queue_stripe_count = 'auto'").await.unwrap();
        provision(&client, "plain").await;
        for neighbour in ["other#9", "new#", "new#x", "new#64", "newer#9"] {
            provision(&client, neighbour).await;
        }
        for queue in ["plain", "new", "zz#9"] {
            assert_eq!(send_ten(&client, storage, queue).await, vec![json!(queue); 10], "{storage:?}");
        }
    }
}
