//! What an attacker found: each was a way to strand jobs, or to get at what is another's.

use awa_ingest_tests::{Db, assert_same_rows, failure, rows};
use serde_json::{Value, json};

use crate::setup::{assert_lanes_are_whole, assert_status, attached, insert, run};

const ROTATE: &str = "UPDATE awa.queue_ring_state SET current_slot = (current_slot + 1) % slot_count, generation = generation + 1";

/// Single calls keep the slot that they found behind the lane's lock; other ways of the same transaction read the ring anew. A later
/// position must never be in an older slot, whichever way it came.
#[tokio::test(flavor = "multi_thread")]
async fn ways_in_mix_on_a_lane_while_the_ring_turns() {
    let db = attached().await;
    let (client, other) = (db.connect().await, db.connect().await);
    insert(&client, "'k', 'q'").await;
    for batch in [
        "INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'q')",
        "SELECT * FROM awa.enqueue_batch('[{\"kind\": \"k\", \"queue\": \"q\"}]')",
        "SELECT awa.enqueue('k', queue => 'q')",
        "SELECT awa.reserve_enqueue_seq('q', 2::smallint, 0::smallint, 1)",
    ] {
        run(&client, "BEGIN").await;
        insert(&client, "'k', 'q'").await;
        insert(&client, "'k', 'q'").await;
        run(&other, ROTATE).await;
        insert(&client, "'k', 'q'").await;
        run(&client, batch).await;
        insert(&client, "'k', 'q'").await;
        run(&client, "COMMIT").await;
        let backwards =
            "(SELECT lane_seq FROM (SELECT lane_seq, ready_generation, lag(ready_generation) OVER (ORDER BY lane_seq) AS before
                            FROM awa.ready_entries WHERE queue = 'q') AS row WHERE ready_generation < before)";
        assert_eq!(rows(&other, backwards, &[]).await, Vec::<Value>::new(), "{batch}");
        assert_lanes_are_whole(&other, "awa", batch).await;
    }
}

/// Who writes a table locks it: a prune, or a REINDEX CONCURRENTLY, must not go past an open writer.
#[tokio::test(flavor = "multi_thread")]
async fn both_partitions_are_locked_while_the_writer_is_open() {
    let db = attached().await;
    let (client, other) = (db.connect().await, db.connect().await);
    insert(&client, "'k', 'q'").await;
    run(&client, "BEGIN").await;
    insert(&client, "'k', 'q'").await;
    insert(&client, "'k', 'q'").await;
    let locks = "(SELECT relation::regclass::text AS name FROM pg_locks
                   WHERE mode = 'RowExclusiveLock' AND relation IN ('awa.ready_entries_0'::regclass, 'awa.ready_segments_0'::regclass))";
    let locked = ["awa.ready_entries_0", "awa.ready_segments_0"].map(|name| json!({"name": name}));
    let mut found = rows(&other, locks, &[]).await;
    found.sort_by_key(ToString::to_string);
    assert_same_rows("locks", &locked, &found);
    for table in ["ready_entries_0", "ready_segments_0"] {
        let truncate = format!("SET lock_timeout = 50; TRUNCATE awa.{table}");
        assert_eq!(failure(other.batch_execute(&truncate).await).sqlstate, "55P03", "{table}");
    }
}

/// Neither another function of the name nor another name or schema hides the replaced function from the guard and from `detach`.
#[tokio::test(flavor = "multi_thread")]
async fn the_replaced_function_is_found_wherever_it_is() {
    let arguments = "int, int, int, int, int, int, int, int, int, int, int, int, int";
    let overload = format!("CREATE FUNCTION awa.insert_job_compat({arguments}) RETURNS int LANGUAGE sql AS 'SELECT 1'");
    let hidings = [
        (
            overload.as_str(),
            "replaced",
            "DROP FUNCTION awa.insert_job_compat(int, int, int, int, int, int, int, int, int, int, int, int, int)",
        ),
        (
            "ALTER FUNCTION awa.insert_job_compat RENAME TO hidden",
            "misfit",
            "ALTER FUNCTION awa.hidden RENAME TO insert_job_compat",
        ),
        (
            "ALTER FUNCTION awa.insert_job_compat SET SCHEMA public",
            "misfit",
            "ALTER FUNCTION public.insert_job_compat SET SCHEMA awa",
        ),
    ];
    for (hide, status, show) in hidings {
        let db = attached().await;
        let client = db.connect().await;
        run(&client, hide).await;
        assert_status(&client, status, hide).await;
        assert_eq!(failure(client.batch_execute("DROP EXTENSION awa_ingest").await).sqlstate, "2BP01", "{hide}");
        if status == "misfit" {
            assert_eq!(failure(client.batch_execute("SELECT awa_ingest.detach()").await).sqlstate, "55000", "{hide}");
        }
        run(&client, show).await;
        run(&client, "SELECT awa_ingest.detach()").await;
        assert_status(&client, "original", hide).await;
    }
}

/// A type of the owner's own in awa's state would have his cast function run by whoever asks where jobs go.
#[tokio::test(flavor = "multi_thread")]
async fn a_column_of_another_type_is_not_read() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let trap = "CREATE TABLE awa.loot (who text); CREATE TYPE awa.bait AS (a int);
        CREATE FUNCTION awa.spring(awa.bait) RETURNS jsonb LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO awa.loot VALUES (current_user); RETURN '{}'; END $$;
        CREATE CAST (awa.bait AS jsonb) WITH FUNCTION awa.spring(awa.bait) AS IMPLICIT;
        ALTER TABLE awa.storage_transition_state ALTER details DROP DEFAULT, ALTER details TYPE awa.bait USING row(1)::awa.bait";
    run(&client, trap).await;
    let ready: bool = client.query_one("SELECT ready FROM awa_ingest.status()", &[]).await.unwrap().get(0);
    assert!(!ready);
    for call in ["SELECT awa_ingest.attach()", "SELECT awa.enqueue('k')", "SELECT * FROM awa.enqueue_batch('[{\"kind\": \"k\"}]')"]
    {
        assert_eq!(failure(client.batch_execute(call).await).sqlstate, "55000", "{call}");
    }
    assert_eq!(rows(&client, "awa.loot", &[]).await, Vec::<Value>::new());
}

/// The row is read after everything that `adopt` allocated is gone.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_are_adopted_and_told() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let jobs =
        "SELECT count(*) FROM awa.enqueue_batch((SELECT jsonb_agg(jsonb_build_object('kind', 'k', 'args', n, 'unique', true))
                                                          FROM generate_series(1, 3000) AS n))";
    run(&client, jobs).await;
    db.migrate_awa().await;
    run(&client, "BEGIN; SAVEPOINT again").await;
    for _ in 0..3 {
        let counts = rows(&client, "(SELECT * FROM awa_ingest.adopt())", &[]).await;
        assert_eq!(counts, [json!({"ready": 3000, "deferred": 0, "skipped": 0})]);
        run(&client, "SELECT awa_ingest.adopt(); ROLLBACK TO again").await;
    }
}
