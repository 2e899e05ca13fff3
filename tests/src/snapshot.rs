//! Comparing what tables hold.

use serde_json::Value;
use tokio_postgres::Client;

/// All rows of `table` (or of a parenthesised query) as JSON objects without the columns `but`, in the order of their text, so that two
/// tables with the same rows give the same vector.
pub async fn rows(client: &Client, table: &str, but: &[&str]) -> Vec<Value> {
    let sql = format!("SELECT r FROM (SELECT to_jsonb(t) - $1::text[] AS r FROM {table} AS t) AS s ORDER BY r::text COLLATE \"C\"");
    let found = client.query(&sql, &[&but]).await.expect(table);
    found.into_iter().map(|row| row.get(0)).collect()
}

/// Fails with the rows that only one side has.
#[track_caller]
pub fn assert_same_rows(what: &str, expected: &[Value], found: &[Value]) {
    let missing = without(expected, found);
    let surplus = without(found, expected);
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "{what}: rows differ\n  only expected: {}\n  only found: {}",
        listing(&missing),
        listing(&surplus),
    );
}

/// The rows of `all`, counted, that `others` does not have.
fn without<'a>(all: &'a [Value], others: &[Value]) -> Vec<&'a Value> {
    let mut others: Vec<&Value> = others.iter().collect();
    all.iter()
        .filter(|row| match others.iter().position(|other| other == row) {
            Some(at) => {
                others.swap_remove(at);
                false
            }
            None => true,
        })
        .collect()
}

fn listing(rows: &[&Value]) -> String {
    rows.iter().map(|row| format!("\n    {row}")).collect()
}
