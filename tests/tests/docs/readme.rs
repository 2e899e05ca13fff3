//! What the documentation shows is true: its SQL runs, and its table of settings is the server's.

use awa_ingest_tests::Db;
use std::collections::BTreeSet;

const README: &str = include_str!("../../../README.md");
const BESIDE_AWA: &str = include_str!("../../../docs/awa.md");

/// The contents of the ```sql blocks, in order.
fn sql_blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```sql\n").skip(1).map(|rest| rest.split("\n```").next().expect("a block ends"))
}

#[tokio::test]
async fn readme_sql_runs_as_printed() {
    let db = Db::bare().await;
    let client = db.connect().await;
    let blocks: Vec<_> = sql_blocks(README).collect();
    assert!(blocks.len() >= 6, "the README's blocks are found: {}", blocks.len());
    // The role is the server's, not the database's.
    client.batch_execute("DROP ROLE IF EXISTS app").await.unwrap();
    for sql in blocks {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    }
    let counts = client.query_one("SELECT count(*), count(DISTINCT queue) FROM awa_ingest.ready_entries", &[]).await.unwrap();
    assert_eq!((counts.get::<_, i64>(0), counts.get::<_, i64>(1)), (110, 5));
    client.batch_execute("DROP OWNED BY app; DROP ROLE app").await.unwrap_or_else(|error| panic!("{error:?}"));
}

/// The page for those who run awa, in one of their databases.
#[tokio::test]
async fn sql_beside_awa_runs_as_printed() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let blocks: Vec<_> = sql_blocks(BESIDE_AWA).collect();
    assert!(blocks.len() >= 4, "the page's blocks are found: {}", blocks.len());
    for sql in blocks {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    }
    let jobs = client.query_one("SELECT count(*) FROM awa.jobs", &[]).await.unwrap();
    assert_eq!(jobs.get::<_, i64>(0), 5, "one by awa's function, two of a batch, two invoices");
}

#[tokio::test]
async fn readme_lists_the_settings() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    client.batch_execute("SELECT * FROM awa_ingest.status()").await.unwrap();
    let sql = "SELECT name || '|' || CASE WHEN unit = 'kB' THEN pg_size_pretty(boot_val::bigint * 1024) ELSE boot_val END
                 FROM pg_settings WHERE name LIKE 'awa_ingest.%'";
    let defined: BTreeSet<String> =
        client.query(sql, &[]).await.unwrap().iter().map(|row| row.get::<_, String>(0).replace(' ', "")).collect();
    let rows = README.lines().filter(|line| line.starts_with("| `awa_ingest."));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).collect::<Vec<_>>());
    let listed: BTreeSet<String> = cells.map(|cells| format!("{}|{}", cells[1], cells[2])).collect();
    assert_eq!(listed, defined);
}
