//! Calls of the functions by the drivers of other languages, which type parameters in their own ways.

use std::path::Path;
use std::process::Stdio;

use awa_ingest_tests::{Db, within};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::process::Command;

/// Each call enqueues a job with priority 1, three attempts and a key, on a queue of its own.
const PYTHON: &str = r#"
import json

import psycopg
from psycopg.types.json import Json, Jsonb

number = 0
with psycopg.connect() as connection:
    named = "SELECT awa.enqueue(%s, %s, queue => %s, priority => %s, max_attempts => %s, uniqueness => %s)"
    for form in [Json, Jsonb, json.dumps]:
        for unique in [True, Jsonb(True), Json({"by_queue": True}), "true"]:
            number += 1
            call = ["k", form({"a": number}), f"psycopg {number}", 1, 3, unique]
            assert connection.execute(named, call).fetchone()[0] > 0
            assert connection.execute(named[:-1] + ", on_conflict => 'skip')", call).fetchone() == (None,)
    cursor = psycopg.ClientCursor(connection)
    cursor.execute(named, ["k", Json({"a": 0}), "psycopg client side", 1, 3, True])
    for jobs in [Json([{"kind": "k"}]), Jsonb([{"kind": "k"}]), '[{"kind": "k"}]']:
        connection.execute("SELECT awa.enqueue_batch(%s, %s)", [jobs, "skip"])
    connection.execute("SELECT awa.enqueue_columns(%s, %s, priority => %s)", [["k", "k"], ['1', '{"a": 1}'], [1, 2]])
    connection.execute("SELECT awa.enqueue_columns(%s, %s, priority => %s)", [["k", "k"], [Jsonb(1), Jsonb({})], [1, 2]])
"#;

const NODE: &str = r#"
import pg from 'pg';
const client = new pg.Client();
await client.connect();
const named = 'SELECT awa.enqueue($1, $2, queue => $3, priority => $4, max_attempts => $5, uniqueness => $6)';
await client.query(named, ['k', { a: 1 }, 'node object', 1, 3, true]);
await client.query(named, ['k', JSON.stringify({ a: 2 }), 'node text', 1, 3, { by_queue: true }]);
await client.query(named, ['k', { a: 3 }, 'node text', '1', '3', 'true']);
await client.query('SELECT awa.enqueue_batch($1)', [JSON.stringify([{ kind: 'k' }])]);
await client.query('SELECT awa.enqueue_columns($1, $2, priority => $3)', [['k', 'k'], [{ a: 1 }, { a: 2 }], [1, 2]]);
await client.end();
"#;

const JAVA: &str = r#"
import java.sql.DriverManager;
import java.sql.Types;

class Calls {
    public static void main(String[] arguments) throws Exception {
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_DATABASE_URL"))) {
            var named = "SELECT awa.enqueue(?, ?, queue => ?, priority => ?, max_attempts => ?, uniqueness => ?)";
            try (var call = connection.prepareStatement(named)) {
                call.setString(1, "k");
                call.setString(2, "{\"a\": 1}");
                call.setString(3, "java strings");
                call.setInt(4, 1);
                call.setLong(5, 3);
                call.setBoolean(6, true);
                call.executeQuery();
                call.setObject(2, "{\"a\": 2}", Types.OTHER);
                call.setString(3, "java other");
                call.setShort(4, (short) 1);
                call.setObject(6, "{\"by_queue\": true}", Types.OTHER);
                call.executeQuery();
                var json = new org.postgresql.util.PGobject();
                json.setType("json");
                json.setValue("{\"a\": 3}");
                call.setObject(2, json);
                call.setString(3, "java json");
                call.setString(6, "true");
                call.executeQuery();
            }
            try (var call = connection.prepareStatement("SELECT awa.enqueue_batch(?)")) {
                call.setString(1, "[{\"kind\": \"k\"}]");
                call.executeQuery();
            }
            try (var call = connection.prepareStatement("SELECT awa.enqueue_columns(?, ?, priority => ?)")) {
                call.setArray(1, connection.createArrayOf("text", new String[] {"k", "k"}));
                call.setArray(2, connection.createArrayOf("varchar", new String[] {"1", "{}"}));
                call.setArray(3, connection.createArrayOf("integer", new Integer[] {1, 2}));
                call.executeQuery();
            }
        }
    }
}
"#;

async fn run(mut command: Command, db: &Db) {
    let (port, name) = (db.cluster().port().to_string(), db.name());
    command
        .env("JDBC_DATABASE_URL", format!("jdbc:postgresql://127.0.0.1:{port}/{name}?user=postgres"))
        .envs([("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "postgres"), ("PGDATABASE", name)])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = within("the calls", command.output()).await.expect("the program starts: scripts/setup-clients installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// All named calls stored the job that they asked for.
async fn check(db: &Db, calls: usize, others: usize) {
    let client = db.connect().await;
    let sql = "SELECT queue, priority, max_attempts, unique_key IS NOT NULL, args FROM awa_ingest.ready_entries";
    let jobs = client.query(sql, &[]).await.unwrap();
    let (named, rest): (Vec<_>, Vec<_>) = jobs.iter().partition(|row| row.get::<_, &str>(0) != "default");
    assert_eq!((named.len(), rest.len()), (calls, others));
    for job in named {
        let queue: &str = job.get(0);
        assert_eq!((job.get::<_, i16>(1), job.get::<_, i16>(2), job.get::<_, bool>(3)), (1, 3, true), "{queue}");
        assert!(job.get::<_, Value>(4)["a"].is_number(), "{queue}");
    }
}

fn clients() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/clients")
}

#[tokio::test]
async fn psycopg_calls() {
    let db = Db::embedded().await;
    let mut command = Command::new(clients().join("venv/bin/python"));
    command.args(["-c", PYTHON]);
    run(command, &db).await;
    check(&db, 13, 7).await;
}

#[tokio::test]
async fn node_calls() {
    let db = Db::embedded().await;
    let mut command = Command::new("node");
    command.args(["--input-type=module", "-e", NODE]).current_dir(clients());
    run(command, &db).await;
    check(&db, 3, 3).await;
}

#[tokio::test]
async fn java_calls() {
    let db = Db::embedded().await;
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("Calls-{}.java", std::process::id()));
    std::fs::write(&source, JAVA).expect("writing the program");
    let mut command = Command::new("java");
    command.args(["-cp", "/usr/share/java/postgresql.jar"]).arg(&source);
    run(command, &db).await;
    std::fs::remove_file(&source).expect("removing the program");
    check(&db, 3, 3).await;
}

/// sqlx declares the types of what it binds.
#[tokio::test]
async fn sqlx_calls() {
    let db = Db::embedded().await;
    let mut connection = PgConnection::connect(&db.url()).await.unwrap();
    let named = "SELECT awa.enqueue($1, $2, queue => $3, priority => $4, max_attempts => $5, uniqueness => $6)";
    let json = sqlx::query(named).bind("k").bind(json!({"a": 1})).bind("sqlx json").bind(1i16).bind(3i32).bind(true);
    json.execute(&mut connection).await.unwrap();
    // sqlx keeps a statement by its text, with the types of its first use.
    let (second, third) = (format!("{named} -- 2"), format!("{named} -- 3"));
    let text = sqlx::query(&second).bind("k").bind("{\"a\": 2}").bind("sqlx text").bind(1i32).bind(3i64).bind("true");
    text.execute(&mut connection).await.unwrap();
    let options = sqlx::query(&third).bind("k").bind("{\"a\": 3}").bind("sqlx options").bind(1i64).bind(3i16);
    options.bind(json!({"by_queue": true})).execute(&mut connection).await.unwrap();
    sqlx::query("SELECT awa.enqueue_batch($1)").bind("[{\"kind\": \"k\"}]").execute(&mut connection).await.unwrap();
    sqlx::query("SELECT awa.enqueue_batch(jobs => $1)").bind(json!([{"kind": "k"}])).execute(&mut connection).await.unwrap();
    let columns = sqlx::query("SELECT awa.enqueue_columns($1, $2, priority => $3)");
    columns.bind(vec!["k"]).bind(vec!["{}"]).bind(vec![1i16]).execute(&mut connection).await.unwrap();
    check(&db, 3, 3).await;
}
