//! A lane that is made while it is being made: by an event trigger or a trigger of the storage that enqueues.

use awa_ingest_tests::{Storage, failure, stored_kinds};

const EVENT_TRIGGER: &str = "
    CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
        IF tg_tag NOT LIKE 'CREATE%' OR current_setting('test.off', true) = 'on' THEN RETURN; END IF;
        PERFORM awa.enqueue('ddl', queue => 'ddl'); END $$;
    CREATE EVENT TRIGGER note ON ddl_command_end EXECUTE FUNCTION note()";

/// An event trigger's own queue is new: the session would make its lane without end.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_trigger_gets_an_error_instead_of_a_stack_overflow() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client.batch_execute(EVENT_TRIGGER).await.unwrap();
        for statement in [
            "CREATE TABLE t ()",
            "SELECT awa.enqueue('k', queue => 'ddl')",
            "SELECT awa.enqueue('k', queue => 'another')",
            "INSERT INTO awa.ingest (kind, queue) VALUES ('k', 'ddl')",
        ] {
            let refused = failure(client.batch_execute(statement).await);
            assert_eq!(refused.sqlstate, "55000", "{statement}: {refused:?}");
            assert!(refused.hint.contains("awa_ingest.provision_lane"), "{refused:?}");
        }
        // As the hint says.
        client.batch_execute("SET test.off = on; SELECT awa_ingest.provision_lane('ddl', 2::smallint, 0::smallint)").await.unwrap();
        client
            .batch_execute("RESET test.off; CREATE TABLE t (); SELECT awa.enqueue('k', queue => 'ddl')")
            .await
            .expect("the lane is there");
        assert_eq!(stored_kinds(&client, storage).await, ["ddl", "k"], "{storage:?}");
        // A new lane's sequences are commands, too, and what they enqueue comes before the lane's first job.
        client.batch_execute("SELECT awa.enqueue('k', queue => 'another')").await.expect("the trigger's lane is there");
        let kinds = stored_kinds(&client, storage).await;
        assert!(kinds.len() > 3 && kinds.iter().filter(|kind| *kind == "k").count() == 2, "{kinds:?}");
    }
}

/// A trigger of the storage that enqueues into each new lane.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_on_a_lanes_row_gets_an_error() {
    for storage in Storage::BOTH {
        let client = storage.db().await.connect().await;
        client
            .batch_execute(&format!(
                "CREATE FUNCTION greet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     PERFORM awa.enqueue('greeting', queue => CASE WHEN NEW.queue LIKE 'chain%' THEN NEW.queue || 'n' ELSE NEW.queue END);
                     RETURN NULL; END $$;
                 CREATE TRIGGER greet AFTER INSERT ON {} FOR EACH ROW EXECUTE FUNCTION greet()",
                storage.table("queue_lanes")
            ))
            .await
            .unwrap();
        for queue in ["new", "chain"] {
            let refused = failure(client.execute("SELECT awa.enqueue('k', queue => $1)", &[&queue]).await);
            assert_eq!(refused.sqlstate, "55000", "{queue}: {refused:?}");
        }
        // The session is as good as before.
        client.batch_execute(&format!("DROP TRIGGER greet ON {}", storage.table("queue_lanes"))).await.unwrap();
        client.batch_execute("SELECT awa.enqueue('k', queue => 'new')").await.unwrap();
        assert_eq!(stored_kinds(&client, storage).await, ["k"], "{storage:?}");
    }
}
