//! A foreign table's columns are checked when it is made or altered.

use awa_ingest_tests::{Db, Storage, failure, rows, stored_kinds};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_columns_are_refused_when_the_table_is_made() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let setup = "CREATE TYPE job_row AS (kind text, colour text);
        CREATE TABLE like_this (kind text, args json);
        CREATE TABLE parent (kind text, colour text) PARTITION BY LIST (colour);
        CREATE TABLE inherited (kind text, priority numeric(6, 2))";
    client.batch_execute(setup).await.unwrap();
    for (create, sqlstate) in [
        ("CREATE FOREIGN TABLE t (kind text, colour text) SERVER awa_ingest", "42703"),
        ("CREATE FOREIGN TABLE t (kind text, args numeric) SERVER awa_ingest", "42804"),
        ("CREATE FOREIGN TABLE t PARTITION OF parent FOR VALUES IN ('a') SERVER awa_ingest", "42703"),
        ("CREATE FOREIGN TABLE t () INHERITS (inherited) SERVER awa_ingest", "42804"),
        ("CREATE FOREIGN TABLE t (kind text) SERVER awa_ingest; ALTER FOREIGN TABLE t ADD colour text", "42703"),
        (
            "CREATE FOREIGN TABLE t (kind text, args jsonb) SERVER awa_ingest; ALTER FOREIGN TABLE t ALTER args TYPE numeric",
            "42804",
        ),
    ] {
        let refused = failure(client.batch_execute(create).await);
        assert_eq!(refused.sqlstate, sqlstate, "{create}: {refused:?}");
        assert_eq!(rows(&client, "(SELECT FROM pg_class WHERE relname = 't')", &[]).await.len(), 0, "{create}");
    }
    // What no command of the kind does is found with the first row.
    client.batch_execute("CREATE FOREIGN TABLE t (kind text) SERVER awa_ingest; ALTER TABLE t ADD colour text").await.unwrap();
    assert_eq!(failure(client.batch_execute("INSERT INTO t VALUES ('k')").await).sqlstate, "42703");
    // It can be put right.
    client.batch_execute("ALTER FOREIGN TABLE t DROP colour, ADD queue text; INSERT INTO t VALUES ('k', 'q')").await.unwrap();
    assert_eq!(stored_kinds(&client, Storage::Embedded).await, ["k"]);
}

/// Other wrappers' tables have any columns, and who makes tables needs no right to anything of this extension but its server.
#[tokio::test(flavor = "multi_thread")]
async fn others_are_left_alone() {
    let db = Db::embedded().await;
    let (client, role) = (db.connect().await, db.role("maker").await);
    client
        .batch_execute(&format!(
            "CREATE FOREIGN DATA WRAPPER other; CREATE SERVER other FOREIGN DATA WRAPPER other;
             GRANT USAGE ON FOREIGN SERVER other, awa_ingest TO {role}; CREATE SCHEMA mine AUTHORIZATION {role}"
        ))
        .await
        .unwrap();
    let maker = db.connect_as(&role).await;
    maker.batch_execute("CREATE FOREIGN TABLE mine.other (colour numeric) SERVER other").await.unwrap();
    maker.batch_execute("CREATE FOREIGN TABLE mine.good (kind text) SERVER awa_ingest").await.unwrap();
    let refused = failure(maker.batch_execute("CREATE FOREIGN TABLE mine.bad (colour text) SERVER awa_ingest").await);
    assert_eq!(refused.sqlstate, "42703", "{refused:?}");
    // Several tables in one command.
    let both = "CREATE SCHEMA more CREATE TABLE a (n int) CREATE TABLE b (n int)";
    client.batch_execute(both).await.expect(both);
    let version = rows(&client, "(SELECT current_setting('server_version_num')::int >= 170000 AS has_setting)", &[]).await;
    if version == [json!({"has_setting": true})] {
        client.batch_execute("SET event_triggers = off; CREATE FOREIGN TABLE bad (colour text) SERVER awa_ingest").await.unwrap();
        assert_eq!(failure(client.batch_execute("INSERT INTO bad VALUES ('c')").await).sqlstate, "42703");
    }
    client.batch_execute("DROP EXTENSION awa_ingest CASCADE; CREATE FOREIGN TABLE after (colour text) SERVER other").await.unwrap();
}

/// Reading is refused also where nothing would be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_is_never_true_is_a_read_too() {
    let client = Db::embedded().await.connect().await;
    for read in ["SELECT * FROM awa.ingest WHERE false", "SELECT count(*) FROM awa.ingest WHERE 1 = 2", "TABLE awa.ingest LIMIT 0"]
    {
        assert_eq!(failure(client.query(read, &[]).await).sqlstate, "0A000", "{read}");
    }
}
