//! Foreign tables of the user's own are the user's: in dumps, and when the extension goes.

use std::io::Write;
use std::process::Stdio;

use awa_ingest_tests::copy::copy_csv;
use awa_ingest_tests::{Db, Storage, assert_same_rows, failure, rows, stored_kinds};

const TABLES: &str = r#"
    CREATE FOREIGN TABLE orders (args jsonb DEFAULT '{"d": 1}', kind text GENERATED ALWAYS AS ('order_' || (args->>'d')) STORED, job_id bigint)
        SERVER awa_ingest OPTIONS (queue 'o''rders', priority '1', uniqueness '{"by_queue": true}', tags '["a"]', on_conflict 'skip');
    CREATE TABLE events (kind text, queue text) PARTITION BY LIST (queue);
    CREATE FOREIGN TABLE events_a PARTITION OF events FOR VALUES IN ('a') SERVER awa_ingest;
    CREATE VIEW mails AS SELECT args FROM orders;
    CREATE SERVER mine FOREIGN DATA WRAPPER awa_ingest;
    CREATE FOREIGN TABLE others (kind text) SERVER mine"#;

/// Dumps `from` into `to`, where everything must arrive without an error.
fn copy(from: &Db, to: &Db, format: &str) {
    let dump = from.cluster().program("pg_dump").args([format, from.name()]).output().expect("running pg_dump");
    assert!(dump.status.success(), "pg_dump: {}", String::from_utf8_lossy(&dump.stderr));
    let mut restore = if format == "--format=plain" {
        let mut psql = to.cluster().program("psql");
        psql.args(["-qX", "-v", "ON_ERROR_STOP=1", "-d", to.name()]);
        psql
    } else {
        let mut restore = to.cluster().program("pg_restore");
        restore.args(["-e", "-1", "-d", to.name()]);
        restore
    };
    let mut child = restore.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starting a restore");
    child.stdin.take().expect("a pipe").write_all(&dump.stdout).expect("feeding the restore");
    let output = child.wait_with_output().expect("waiting for the restore");
    assert!(output.status.success(), "{restore:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Foreign tables with their options, and the wrappers and servers there are.
const CATALOG: &str =
    "(SELECT ftrelid::regclass::text AS name, srvname, array(SELECT unnest(ftoptions) ORDER BY 1)::text AS options
      FROM pg_foreign_table JOIN pg_foreign_server AS s ON s.oid = ftserver
    UNION ALL SELECT fdwname, fdwhandler::regproc::text, fdwvalidator::regproc::text FROM pg_foreign_data_wrapper)";

#[tokio::test(flavor = "multi_thread")]
async fn a_users_tables_survive_a_dump() {
    for storage in Storage::BOTH {
        let source = storage.db().await;
        let original = source.connect().await;
        original.batch_execute(TABLES).await.unwrap();
        copy_csv(&original, "orders", "args", "\"{\"\"d\"\": 5}\"\n").await.expect("COPY");
        for format in ["--format=plain", "--format=custom"] {
            let target = Db::bare().await;
            copy(&source, &target, format);
            let restored = target.connect().await;
            assert_same_rows(format, &rows(&original, CATALOG, &[]).await, &rows(&restored, CATALOG, &[]).await);
            restored.batch_execute("INSERT INTO mails DEFAULT VALUES").await.expect("a view over a table with defaults");
            assert_eq!(copy_csv(&restored, "orders", "args", "\"{\"\"d\"\": 5}\"\n\"{\"\"d\"\": 6}\"\n").await.expect("COPY"), 2);
            assert_eq!(copy_csv(&restored, "events", "kind, queue", "event,a\n").await.expect("COPY"), 1);
            restored.batch_execute("INSERT INTO others VALUES ('other')").await.expect("another server");
            let expected = ["order_5", "order_1", "order_6", "event", "other"];
            assert_eq!(stored_kinds(&restored, storage).await, expected, "the dump's key is still held, {format}, {storage:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_extension_needs_cascade_for_them() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute("CREATE FOREIGN TABLE orders (kind text) SERVER awa_ingest").await.unwrap();
        assert_eq!(failure(client.batch_execute("DROP EXTENSION awa_ingest").await).sqlstate, "2BP01", "{storage:?}");
        for own in
            ["DROP FOREIGN TABLE awa.ingest", "DROP SERVER awa_ingest CASCADE", "DROP FOREIGN DATA WRAPPER awa_ingest CASCADE"]
        {
            assert_eq!(failure(client.batch_execute(own).await).sqlstate, "2BP01", "{own}: a member of the extension");
        }
        client.batch_execute("INSERT INTO orders VALUES ('k')").await.expect("nothing was dropped");

        client.batch_execute(&format!("DELETE FROM {}", storage.table("ready_entries"))).await.unwrap();
        client.batch_execute("DROP EXTENSION awa_ingest CASCADE").await.expect("CASCADE");
        let left = rows(&client, "(SELECT FROM pg_foreign_table UNION ALL SELECT FROM pg_foreign_data_wrapper)", &[]).await;
        assert!(left.is_empty(), "{storage:?}");
        client
            .batch_execute("CREATE EXTENSION awa_ingest; INSERT INTO awa.ingest (kind) VALUES ('again')")
            .await
            .expect("and back");
        assert_eq!(stored_kinds(&client, storage).await, ["again"]);
    }
}
