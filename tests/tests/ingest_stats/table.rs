//! The table that all databases of a server share.

use awa_ingest_tests::{Cluster, Db, Template};
use tokio_postgres::Client;

use crate::{PRELOADED, counted, database, of, run};

/// Has each of the queues `names` get a deferred job, which needs no lane.
async fn fill(client: &Client, names: &str, queues: i64) {
    let sql = format!(
        "SELECT awa.enqueue_batch((SELECT jsonb_agg(jsonb_build_object('kind', 'k', 'queue', {names}, 'run_at', '2100-01-01T00:00:00Z'))
           FROM generate_series(1, {queues}) AS n))"
    );
    run(client, &sql).await;
}

/// Rows for queues, and jobs of the row without queue.
async fn rows(client: &Client) -> (usize, Option<i64>) {
    let all = counted(client).await;
    let others: Vec<i64> = all.iter().filter(|(queue, ..)| queue.is_none()).map(|(_, jobs, ..)| *jobs).collect();
    assert!(others.len() <= 1);
    (all.len() - others.len(), others.first().copied())
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_find_no_room_count_together() {
    let cluster = Cluster::start(&[PRELOADED]);
    let (db, other) = (Db::on(cluster.clone(), Template::Embedded).await, Db::on(cluster.clone(), Template::Embedded).await);
    let (client, neighbour) = (db.connect().await, other.connect().await);
    fill(&client, "'q' || n", 500).await;
    assert_eq!(rows(&client).await, (500, None));
    fill(&client, "'more' || n", 20).await;
    assert_eq!(rows(&client).await, (512, Some(8)));
    fill(&client, "'q' || n", 500).await;
    assert_eq!(rows(&client).await, (512, Some(8)), "those that are known are told apart");
    fill(&neighbour, "'q'", 3).await;
    assert_eq!((rows(&neighbour).await, rows(&client).await), ((0, Some(3)), (512, Some(8))), "a database each");

    // A database that is gone leaves its room to others when one of them is reset, and only then.
    drop(client);
    let postgres = neighbour;
    awa_ingest_tests::wait_until(
        &postgres,
        &format!(
            "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = '{}')",
            db.name()
        ),
    )
    .await;
    run(&postgres, &format!("DROP DATABASE {}", db.name())).await;
    run(&postgres, "SELECT awa_ingest.reset_ingest_stats()").await;
    fill(&postgres, "'new' || n", 513).await;
    assert_eq!(rows(&postgres).await, (512, Some(1)));
}

/// 800 bytes are the longest name, and there is room for 81 of them.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_kept_whole_as_long_as_there_is_room() {
    let cluster = Cluster::start(&[PRELOADED]);
    let db = Db::on(cluster, Template::Embedded).await;
    let client = db.connect().await;
    let long = "repeat('🚀', 197) || translate(to_char(n, 'FM000'), '0123456789', '😀😁😂😃😄😅😆😇😈😉')";
    fill(&client, long, 100).await;
    assert_eq!(rows(&client).await, (81, Some(19)));
    let sql = format!("SELECT count(*) FROM awa_ingest.ingest_stats JOIN generate_series(1, 100) AS n ON queue = {long}");
    assert_eq!(client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0), 81);
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_are_told_apart() {
    let (one, two) = (database(Template::Embedded).await, database(Template::Awa).await);
    let (one, two) = (one.connect().await, two.connect().await);
    run(&one, "SELECT awa.enqueue('k', queue => 'q')").await;
    run(&two, "SELECT awa.enqueue('k', queue => 'q') FROM generate_series(1, 2)").await;
    assert_eq!((counted(&one).await, counted(&two).await), (vec![of("q", 1, 1, 0)], vec![of("q", 2, 2, 0)]));

    run(&one, "SELECT awa_ingest.reset_ingest_stats()").await;
    assert_eq!((counted(&one).await, counted(&two).await), (vec![], vec![of("q", 2, 2, 0)]));
    run(&one, "SELECT awa.enqueue('k', queue => 'q')").await;
    assert_eq!(counted(&one).await, [of("q", 1, 1, 0)]);
}

/// What an open transaction counted comes when it commits.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_at_once() {
    let client = database(Template::Embedded).await.connect().await;
    run(&client, "SELECT awa.enqueue('k', queue => 'before')").await;
    run(&client, "BEGIN; SELECT awa.enqueue('k', queue => 'q'); SELECT awa_ingest.reset_ingest_stats(); ROLLBACK").await;
    assert_eq!(counted(&client).await, []);
    run(&client, "BEGIN; SELECT awa.enqueue('k', queue => 'q'); SELECT awa_ingest.reset_ingest_stats(); COMMIT").await;
    assert_eq!(counted(&client).await, [of("q", 1, 1, 0)]);
}
