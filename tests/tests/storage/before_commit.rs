//! A transaction that enqueued is looked at again before it commits: its jobs must still be where somebody works them.

use std::sync::Arc;

use awa_ingest_tests::{
    Cluster, Db, Session, Storage, Template, backend_pid, failure, rows, wait_until, wait_until_blocked, within,
};
use tokio_postgres::{Client, Error};

const ENQUEUE: &str = "SELECT awa.enqueue('step')";
const DEFERRED: &str = "SELECT awa.enqueue('later', run_at => now() + interval '1 day')";

/// Every way in of a ready job, as statements of a transaction that is open.
const WAYS: [&str; 5] = [
    ENQUEUE,
    "SELECT awa.enqueue_batch('[{\"kind\": \"step\"}, {\"kind\": \"step\", \"queue\": \"other\"}]')",
    "SELECT awa.enqueue_columns(kind => '{step}')",
    "INSERT INTO awa.ingest (kind) VALUES ('step')",
    "SELECT awa.enqueue_csv(E'kind\\nstep\\n')",
];

/// The ring turns by so many slots.
async fn rotate(client: &Client, storage: Storage, slots: i32) {
    let turn = format!(
        "UPDATE {} SET current_slot = (current_slot + {slots}) % slot_count, generation = generation + {slots}",
        storage.table("queue_ring_state")
    );
    client.batch_execute(&turn).await.expect(&turn);
}

async fn stored(client: &Client, storage: Storage) -> usize {
    rows(client, &storage.table("ready_entries"), &[]).await.len() + rows(client, &storage.table("deferred_jobs"), &[]).await.len()
}

#[track_caller]
fn assert_serialization_failure(result: Result<(), Error>, what: &str) {
    let refused = failure(result);
    assert_eq!(refused.sqlstate, "40001", "{what}: {refused:?}");
    assert!(refused.hint.contains("Run the transaction again"), "{what}: {refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_turn_of_the_ring_refuses_the_commit() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (client, other) = (db.connect().await, db.connect().await);
        let mut ways = WAYS.to_vec();
        if storage == Storage::Attached {
            other.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
            ways.extend(["SELECT awa.insert_job_compat('step')", "SELECT awa_ingest.insert_jobs_compat_batch('{step}')"]);
        }
        for way in ways {
            client.batch_execute(&format!("BEGIN; {way}")).await.expect(way);
            rotate(&other, storage, 16).await;
            let before = stored(&other, storage).await;
            assert_serialization_failure(client.batch_execute("COMMIT").await, way);
            assert_eq!(stored(&other, storage).await, before, "{way}");
            // Up to there it may take as long as it likes.
            client.batch_execute(&format!("BEGIN; {way}")).await.expect(way);
            rotate(&other, storage, 15).await;
            client.batch_execute("COMMIT").await.expect(way);
            assert!(stored(&other, storage).await > before, "{way}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_takes_a_turn_of_the_ring_belongs_to_the_new_one_and_its_transaction_does_not() {
    let db = Db::embedded().await;
    let (session, other) = (Session::open(&db).await, db.connect().await);
    session.client.batch_execute("BEGIN").await.unwrap();
    let mut copy = session.copy("COPY awa.ingest (kind) FROM STDIN").await;
    copy.send("step\n").await.unwrap();
    copy.wait_until_taken(&other).await;
    rotate(&other, Storage::Embedded, 17).await;
    copy.finish().await.expect("written at its end");
    session.client.batch_execute("COMMIT").await.expect("in the slot that is current");
    session.client.batch_execute("BEGIN").await.unwrap();
    session.copy("COPY awa.ingest (kind) FROM STDIN").await.finish().await.expect("nothing");
    let mut copy = session.copy("COPY awa.ingest (kind) FROM STDIN").await;
    copy.send("step\n").await.unwrap();
    copy.finish().await.unwrap();
    rotate(&other, Storage::Embedded, 17).await;
    assert_serialization_failure(session.client.batch_execute("COMMIT").await, "COPY");
    assert_eq!(stored(&other, Storage::Embedded).await, 1);
}

/// What was rolled back does not count, what is left does: also where a later job went into a newer slot.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolled_back_savepoint_does_not_count() {
    let db = Db::embedded().await;
    let (client, other) = (db.connect().await, db.connect().await);
    let run = async |statements: &str| client.batch_execute(statements).await.expect(statements);
    run(&format!("BEGIN; SAVEPOINT a; {ENQUEUE}; ROLLBACK TO a")).await;
    rotate(&other, Storage::Embedded, 16).await;
    run("COMMIT").await;

    run(&format!("BEGIN; SAVEPOINT a; {ENQUEUE}; SAVEPOINT b")).await;
    rotate(&other, Storage::Embedded, 10).await;
    run(&format!("{ENQUEUE}; ROLLBACK TO a; {ENQUEUE}")).await;
    rotate(&other, Storage::Embedded, 10).await;
    run("COMMIT").await;

    for end in ["RELEASE a", "RELEASE a; SAVEPOINT b; ROLLBACK TO b", "SAVEPOINT b; ROLLBACK TO b"] {
        run(&format!("BEGIN; SAVEPOINT a; {ENQUEUE}; {end}; {DEFERRED}")).await;
        rotate(&other, Storage::Embedded, 16).await;
        assert_serialization_failure(client.batch_execute("COMMIT").await, end);
    }

    // The first job counts, wherever the ring is for the last.
    run(&format!("BEGIN; {ENQUEUE}")).await;
    for _ in 0..4 {
        rotate(&other, Storage::Embedded, 4).await;
        run(&format!("SAVEPOINT s; {ENQUEUE}")).await;
    }
    assert_serialization_failure(client.batch_execute("COMMIT").await, "the first of many");
    // A deferred job is in no slot.
    run(&format!("BEGIN; {DEFERRED}")).await;
    rotate(&other, Storage::Embedded, 32).await;
    run("COMMIT").await;
}

/// Deferred triggers run at the commit, and what they enqueue is looked at as well. A procedure may commit in between.
#[tokio::test(flavor = "multi_thread")]
async fn deferred_triggers_and_procedures_are_looked_at() {
    let db = Db::embedded().await;
    let client = db.connect().await;
    let setup = "CREATE TABLE orders (id int);
        CREATE FUNCTION turn(by int) RETURNS void LANGUAGE sql AS $$
            UPDATE awa_ingest.queue_ring_state SET current_slot = (current_slot + by) % 16, generation = generation + by $$;
        CREATE FUNCTION enqueue_and_turn() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM awa.enqueue('step'); PERFORM turn(16); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER enqueues AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION enqueue_and_turn();
        CREATE PROCEDURE many() LANGUAGE plpgsql AS $$
            BEGIN PERFORM awa.enqueue('step'); COMMIT; PERFORM turn(16); COMMIT; PERFORM awa.enqueue('step'); PERFORM turn(16); COMMIT; END $$";
    client.batch_execute(setup).await.expect(setup);
    assert_serialization_failure(client.batch_execute("INSERT INTO orders VALUES (1)").await, "a deferred trigger");
    assert_serialization_failure(client.batch_execute("CALL many()").await, "the second commit of a procedure");
    assert_eq!(stored(&client, Storage::Embedded).await, 1);
}

fn engine(engine: &str) -> String {
    let state = if engine == "canonical" { "canonical" } else { "active" };
    format!(
        "UPDATE awa.storage_transition_state SET (current_engine, prepared_engine, state, details) = ('{engine}', NULL, '{state}', '{{}}')"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn another_engine_refuses_the_commit() {
    let db = Db::awa().await;
    let (client, other) = (db.connect().await, db.connect().await);
    other.batch_execute("SELECT awa_ingest.attach()").await.unwrap();
    let mut ways = WAYS.to_vec();
    ways.extend([
        DEFERRED,
        "SELECT awa.insert_job_compat('step')",
        "SELECT awa.insert_job_compat('later', p_state => 'scheduled', p_run_at => now() + interval '1 day')",
        "SELECT awa_ingest.insert_jobs_compat_batch('{step}')",
    ]);
    for (before, after) in [("canonical", "queue_storage"), ("queue_storage", "canonical")] {
        for way in &ways {
            other.batch_execute(&engine(before)).await.unwrap();
            client.batch_execute(&format!("BEGIN; {way}")).await.expect(way);
            other.batch_execute(&engine(after)).await.unwrap();
            assert_serialization_failure(client.batch_execute("COMMIT").await, &format!("{before}: {way}"));
            client.batch_execute(&format!("BEGIN; {way}; COMMIT")).await.expect("the second time");
        }
    }
}

/// Another schema of queue storage is another storage. A transaction that itself changes the engine knows what it does.
#[tokio::test(flavor = "multi_thread")]
async fn another_schema_refuses_the_commit() {
    let db = Db::awa().await;
    let (client, other) = (db.connect().await, db.connect().await);
    client.batch_execute(&format!("BEGIN; {ENQUEUE}")).await.unwrap();
    other
        .batch_execute("CREATE SCHEMA elsewhere; UPDATE awa.storage_transition_state SET details = '{\"schema\": \"elsewhere\"}'")
        .await
        .unwrap();
    assert_serialization_failure(client.batch_execute("COMMIT").await, "another schema");
    other.batch_execute(&engine("queue_storage")).await.unwrap();
    let own = format!("BEGIN; {ENQUEUE}; {}; COMMIT; {}", engine("canonical"), engine("queue_storage"));
    client.batch_execute(&own).await.expect("its own change");
}

/// Whatever awa's state says, what is enqueued may be committed: the look before the commit reads it as the call did.
#[tokio::test(flavor = "multi_thread")]
async fn every_state_is_read_alike() {
    let db = Db::awa().await;
    let client = db.connect().await;
    client.batch_execute(ENQUEUE).await.unwrap();
    for state in ["canonical", "prepared", "mixed_transition", "active"] {
        for engines in ["'canonical', NULL", "'canonical', 'queue_storage'", "'queue_storage', NULL", "'queue_storage', ' '"] {
            for details in ["{}", "{\"schema\": \"\"}", "{\"schema\": null}", "{\"schema\": \"awa\", \"more\": [1]}"] {
                let update = format!(
                    "UPDATE awa.storage_transition_state SET (state, current_engine, prepared_engine, details) = ('{state}', {engines}, '{details}')"
                );
                // Not every combination passes awa's own constraints.
                if client.batch_execute(&update).await.is_ok() {
                    client.batch_execute(ENQUEUE).await.expect(&update);
                    client.batch_execute(DEFERRED).await.expect(&update);
                }
            }
        }
    }
    for change in ["DELETE FROM awa.runtime_storage_backends", "DELETE FROM awa.storage_transition_state"] {
        client.batch_execute(change).await.unwrap();
        client.batch_execute(ENQUEUE).await.expect(change);
    }
}

/// awa may be installed while a transaction is open that enqueued into the embedded storage.
#[tokio::test(flavor = "multi_thread")]
async fn awas_arrival_refuses_the_commit() {
    let db = Db::embedded().await;
    let (client, other) = (db.connect().await, db.connect().await);
    client.batch_execute(&format!("BEGIN; {ENQUEUE}")).await.unwrap();
    db.migrate_awa().await;
    assert_serialization_failure(client.batch_execute("COMMIT").await, "awa's arrival");
    client.batch_execute(&format!("BEGIN; {ENQUEUE}; COMMIT")).await.expect("now awa's");
    assert_eq!(stored(&other, Storage::Embedded).await, 0);
}

/// What adopt() moves is looked at as well, and stays in the embedded storage where it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn an_adoption_is_looked_at() {
    let db = Db::embedded().await;
    let (client, other) = (db.connect().await, db.connect().await);
    for job in [ENQUEUE, DEFERRED] {
        client.batch_execute(job).await.unwrap();
    }
    db.migrate_awa().await;
    let adopt = "BEGIN; SELECT awa_ingest.adopt()";
    for engines in [["canonical", "queue_storage"], ["queue_storage", "canonical"]] {
        let [before, after] = engines.map(engine);
        other.batch_execute(&before).await.unwrap();
        client.batch_execute(adopt).await.expect(adopt);
        other.batch_execute(&after).await.unwrap();
        assert_serialization_failure(client.batch_execute("COMMIT").await, &format!("{engines:?}"));
    }
    other.batch_execute(&engine("queue_storage")).await.unwrap();
    client.batch_execute(adopt).await.expect(adopt);
    rotate(&other, Storage::Attached, 16).await;
    assert_serialization_failure(client.batch_execute("COMMIT").await, "a whole turn");
    assert_eq!((stored(&other, Storage::Embedded).await, stored(&other, Storage::Attached).await), (2, 0));
    client.batch_execute(&format!("{adopt}; COMMIT")).await.expect("the second time");
    assert_eq!((stored(&other, Storage::Embedded).await, stored(&other, Storage::Attached).await), (0, 2));
}

/// The look needs no right, and none that the caller has given up by then.
#[tokio::test(flavor = "multi_thread")]
async fn the_look_needs_no_rights() {
    let db = Db::awa().await;
    let (superuser, role, other) = (db.connect().await, db.role("producer").await, db.role("other").await);
    let setup = format!(
        "SELECT awa_ingest.grant_producer('{role}'); GRANT {other} TO {role};
         CREATE FUNCTION public.enqueue() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT awa.enqueue('step') $$"
    );
    superuser.batch_execute(&setup).await.expect(&setup);
    let client = db.connect_as(&role).await;
    client.batch_execute(&format!("BEGIN; {ENQUEUE}; SET LOCAL ROLE {other}; COMMIT")).await.expect("another role commits");
    let client = db.connect_as(&other).await;
    client.batch_execute("SELECT public.enqueue()").await.expect("with the function's rights");
    client.batch_execute("BEGIN; SELECT public.enqueue()").await.unwrap();
    rotate(&superuser, Storage::Attached, 16).await;
    assert_serialization_failure(client.batch_execute("COMMIT").await, "another's function");
}

async fn server() -> Arc<Cluster> {
    Cluster::start(&[
        ("max_prepared_transactions", "5"),
        ("wal_level", "replica"),
        ("max_wal_senders", "2"),
        ("synchronous_standby_names", "nobody"),
        ("synchronous_commit", "local"),
    ])
}

/// Between the look and the commit the ring must not go on where that would matter; nor the engine change.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_looked_at_stays_until_the_commit() {
    let cluster = server().await;
    let turn = "UPDATE awa.queue_ring_state SET current_slot = (current_slot + 1) % 16, generation = generation + 1";
    for (rotations, change, canonical, waits) in [
        (7, turn.to_owned(), false, false),
        (8, turn.to_owned(), false, true),
        (15, turn.to_owned(), false, true),
        (0, engine("queue_storage"), true, true),
    ] {
        let db = Db::on(cluster.clone(), Template::Awa).await;
        let (producer, other, observer) = (Session::open(&db).await, db.connect().await, db.connect().await);
        if canonical {
            other.batch_execute(&engine("canonical")).await.unwrap();
        }
        // The commit waits for a standby that does not exist, behind the look.
        let pid = producer.pid;
        producer.client.batch_execute(&format!("BEGIN; SET LOCAL synchronous_commit = on; {ENQUEUE}")).await.unwrap();
        rotate(&other, Storage::Attached, rotations).await;
        let commit = tokio::spawn(async move { producer.client.batch_execute("COMMIT").await });
        wait_until(&observer, &format!("SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = {pid}")).await;
        let other_pid = backend_pid(&other).await;
        let changing = tokio::spawn(async move { other.batch_execute(&change).await });
        if waits {
            wait_until_blocked(&observer, other_pid).await;
        } else {
            within("the change", changing).await.unwrap().expect("not kept waiting");
            observer.execute("SELECT pg_cancel_backend($1)", &[&pid]).await.unwrap();
            within("the commit", commit).await.unwrap().expect("committed here");
            continue;
        }
        observer.execute("SELECT pg_cancel_backend($1)", &[&pid]).await.unwrap();
        within("the commit", commit).await.unwrap().expect("committed here");
        within("the change", changing).await.unwrap().expect("then");
    }
}

/// A prepared transaction keeps the engine as it is until it is finished; one that comes too late is not prepared.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_keeps_its_storage() {
    let cluster = server().await;
    for (before, after) in [("canonical", "queue_storage"), ("queue_storage", "canonical")] {
        let db = Db::on(cluster.clone(), Template::Awa).await;
        let (client, other, observer) = (db.connect().await, db.connect().await, db.connect().await);
        other.batch_execute(&engine(before)).await.unwrap();
        // Two at a time: neither keeps the other waiting.
        for name in ["one", "two"] {
            client.batch_execute(&format!("BEGIN; {DEFERRED}; PREPARE TRANSACTION '{name}'")).await.expect(before);
        }
        let pid = backend_pid(&other).await;
        let change = engine(after);
        let changing = tokio::spawn(async move { other.batch_execute(&change).await });
        wait_until_blocked(&observer, pid).await;
        client.batch_execute("COMMIT PREPARED 'one'").await.unwrap();
        client.batch_execute("ROLLBACK PREPARED 'two'").await.unwrap();
        within("the change", changing).await.unwrap().expect("then");

        let other = db.connect().await;
        client.batch_execute(&format!("BEGIN; {DEFERRED}")).await.unwrap();
        other.batch_execute(&engine(before)).await.unwrap();
        assert_serialization_failure(client.batch_execute("PREPARE TRANSACTION 'late'").await, before);
        assert!(rows(&other, "pg_prepared_xacts", &[]).await.is_empty());
    }
}
