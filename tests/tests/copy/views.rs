//! Whose rights an INSERT through a view has.

use awa_ingest_tests::{Db, Storage, failure, rows, stored_kinds};
use serde_json::json;

/// A producer's view lets others enqueue who have a right to nothing else, as a view over a table does.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_writes_with_its_owners_rights() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let admin = db.connect().await;
        let (producer, outsider) = (db.role("producer").await, db.role("outsider").await);
        admin
            .batch_execute(&format!(
                "SELECT awa_ingest.grant_producer('{producer}'); GRANT CREATE ON DATABASE {} TO {producer};
                 CREATE TABLE parent (kind text, queue text) PARTITION BY LIST (queue);
                 CREATE FOREIGN TABLE part PARTITION OF parent DEFAULT SERVER awa_ingest;
                 GRANT INSERT ON parent TO {producer}",
                db.name()
            ))
            .await
            .unwrap();
        let owner = db.connect_as(&producer).await;
        owner
            .batch_execute(&format!(
                "CREATE SCHEMA v; GRANT USAGE ON SCHEMA v TO {outsider};
                 CREATE VIEW v.plain AS SELECT kind, queue, uniqueness FROM awa.ingest;
                 CREATE VIEW v.parted AS SELECT kind, queue FROM parent;
                 CREATE VIEW v.callers WITH (security_invoker) AS SELECT kind, queue FROM awa.ingest;
                 GRANT INSERT ON ALL TABLES IN SCHEMA v TO {outsider}"
            ))
            .await
            .unwrap();
        let client = db.connect_as(&outsider).await;
        client.batch_execute("INSERT INTO v.plain VALUES ('a', 'new', 'true'), ('b', 'new', NULL)").await.expect("a new lane");
        client.batch_execute("INSERT INTO v.plain VALUES ('c', 'new', 'true') ON CONFLICT DO NOTHING").await.expect("skipping");
        client.batch_execute("INSERT INTO v.parted VALUES ('d', 'new'), ('e', 'other')").await.expect("partitions");
        assert_eq!(failure(client.batch_execute("INSERT INTO v.callers VALUES ('x', 'new')").await).sqlstate, "42501");
        assert_eq!(failure(client.batch_execute("INSERT INTO awa.ingest (kind) VALUES ('x')").await).sqlstate, "42501");
        let who = client.query_one("SELECT current_user::text, current_setting('search_path')", &[]).await.unwrap();
        assert_eq!((who.get::<_, &str>(0), who.get::<_, &str>(1)), (&*outsider, "\"$user\", public"));
        assert_eq!(stored_kinds(&admin, storage).await, ["a", "b", "c", "d", "e"], "{storage:?}");

        // The owner's rights, and no more: without them the view is of no use.
        admin.batch_execute(&format!("REVOKE USAGE ON SEQUENCE {} FROM {producer}", storage.table("job_id_seq"))).await.unwrap();
        assert_eq!(failure(client.batch_execute("INSERT INTO v.plain VALUES ('x', 'new', NULL)").await).sqlstate, "42501");

        // One who may enqueue himself is not helped by his own right to the storage.
        admin.batch_execute(&format!("SELECT awa_ingest.grant_producer('{outsider}')")).await.unwrap();
        assert_eq!(failure(client.batch_execute("INSERT INTO v.plain VALUES ('x', 'new', NULL)").await).sqlstate, "42501");
        client.batch_execute("INSERT INTO v.callers VALUES ('f', 'new')").await.expect("his own");
    }
}

/// Triggers of the storage are its owner's code, and never run as a superuser who has made a view.
#[tokio::test(flavor = "multi_thread")]
async fn a_superusers_view_writes_as_the_storages_owner() {
    let (db, owner) = Db::awa_of_a_role().await;
    let (admin, outsider) = (db.connect().await, db.role("outsider").await);
    db.connect_as(&owner)
        .await
        .batch_execute(
            "CREATE TABLE awa.seen (who text, super text);
             CREATE FUNCTION awa.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO awa.seen VALUES (current_user, current_setting('is_superuser')); RETURN NEW; END $$;
             CREATE TRIGGER see BEFORE INSERT ON awa.ready_entries FOR EACH ROW EXECUTE FUNCTION awa.see();
             CREATE TRIGGER see BEFORE INSERT ON awa.job_unique_claims FOR EACH ROW EXECUTE FUNCTION awa.see();
             CREATE TRIGGER see BEFORE INSERT ON awa.queue_lanes FOR EACH ROW EXECUTE FUNCTION awa.see()",
        )
        .await
        .unwrap();
    let view = "CREATE VIEW public.jobs AS SELECT kind, queue, uniqueness, job_id FROM awa.ingest_skip_conflicts";
    admin.batch_execute(&format!("{view}; GRANT INSERT, SELECT ON public.jobs TO {outsider}")).await.unwrap();
    let client = db.connect_as(&outsider).await;
    client.batch_execute("INSERT INTO public.jobs VALUES ('a', 'new', 'true')").await.expect("the view's owner may");
    let returning = "INSERT INTO public.jobs VALUES ('b', 'newer', 'true'), ('c', 'newer', NULL) RETURNING job_id";
    assert_eq!(client.query(returning, &[]).await.expect(returning).len(), 2);
    let seen = rows(&admin, "(SELECT DISTINCT who, super FROM awa.seen)", &[]).await;
    assert_eq!(seen, [json!({"who": owner, "super": "off"})]);
}
