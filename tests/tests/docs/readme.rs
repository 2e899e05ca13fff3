//! What the documentation shows is true: its SQL runs, and its table of settings is the server's.

use awa_ingest_tests::Db;
use std::collections::BTreeSet;

const README: &str = include_str!("../../../README.md");
const OPERATIONS: &str = include_str!("../../../docs/operations.md");
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
    client
        .batch_execute("SELECT awa_ingest.revoke_producer('app'); DROP ROLE app")
        .await
        .unwrap_or_else(|error| panic!("{error:?}"));
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

/// The page for those who look after it, where there is no launcher.
#[tokio::test]
async fn sql_for_operators_runs_as_printed() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let blocks: Vec<_> = sql_blocks(OPERATIONS).collect();
    assert!(blocks.len() >= 6, "the page's blocks are found: {}", blocks.len());
    client.batch_execute("DROP ROLE IF EXISTS ops").await.unwrap();
    for sql in blocks {
        client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    }
    client.batch_execute("SELECT awa_ingest.stop_worker(), awa_ingest.revoke_operator('ops'); DROP ROLE ops").await.unwrap();
}

/// Its tables name every column of the views that it explains.
#[tokio::test]
async fn views_are_explained_column_by_column() {
    let db = Db::awa().await;
    let client = db.connect().await;
    for view in ["workers", "maintenance_runs", "lanes", "rings", "ingest_stats"] {
        let section =
            OPERATIONS.split(&format!("\n## `awa_ingest.{view}`\n")).nth(1).unwrap_or_else(|| panic!("a section about {view}"));
        let section = section.split("\n## ").next().unwrap();
        let sql = "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass('awa_ingest.' || $1::text) AND attnum > 0";
        let columns = client.query(sql, &[&view]).await.unwrap();
        assert!(!columns.is_empty(), "{view} exists");
        for column in columns {
            let column: String = column.get(0);
            assert!(section.contains(&format!("`{column}`")), "{view}.{column}");
        }
    }
}

/// Name and default of the settings in a page's table.
fn listed(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `awa_ingest."));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).collect::<Vec<_>>());
    cells.map(|cells| format!("{}|{}", cells[1], cells[2])).collect()
}

#[tokio::test]
async fn the_settings_are_those_of_the_server() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    client.batch_execute("SELECT * FROM awa_ingest.status()").await.unwrap();
    let sql = "SELECT name || '|' || coalesce(nullif(current_setting(name), ''), 'empty') FROM pg_settings WHERE name LIKE 'awa_ingest.%'";
    let defined: BTreeSet<String> = client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(listed(OPERATIONS), defined);
    assert!(listed(README).len() >= 3 && listed(README).is_subset(&defined));
}
