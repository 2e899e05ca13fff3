//! The extension reads awa's transition state itself; it must read it as awa does.

use awa_ingest_tests::Db;

/// Every combination of state, engines and schema that awa's constraints allow, and some that it never writes.
const STATES: &str = "SELECT state, current_engine, prepared_engine, details
    FROM unnest(ARRAY['canonical', 'prepared', 'mixed_transition', 'active']) AS state,
         unnest(ARRAY['canonical', 'queue_storage', ' queue_storage ', 'other']) AS current_engine,
         unnest(ARRAY[NULL, 'canonical', 'queue_storage', '']) AS prepared_engine,
         unnest(ARRAY['{}', '{\"schema\": \"\"}', '{\"schema\": \"awa\"}', '{\"schema\": null}']::jsonb[]) AS details
   WHERE prepared_engine IS NOT NULL OR state NOT IN ('prepared', 'mixed_transition')";

#[tokio::test]
async fn the_active_schema_is_the_one_that_awa_names() {
    let db = Db::awa().await;
    let client = db.connect().await;
    let mut both = [0, 0];
    for state in client.query(STATES, &[]).await.unwrap() {
        let values: (String, String, Option<String>, serde_json::Value) = (state.get(0), state.get(1), state.get(2), state.get(3));
        let update = "UPDATE awa.storage_transition_state SET state = $1, current_engine = $2, prepared_engine = $3, details = $4";
        client.execute(update, &[&values.0, &values.1, &values.2, &values.3]).await.unwrap();
        let said = "SELECT awa.active_queue_storage_schema(), storage_schema, awa.active_storage_engine() = engine, ready, engine
                      FROM awa_ingest.status()";
        let row = client.query_one(said, &[]).await.unwrap();
        let (awas, ours): (Option<String>, Option<String>) = (row.get(0), row.get(1));
        let is_canonical = row.get::<_, &str>(4) == "canonical";
        // The canonical engine is in schema awa, whatever else there is.
        assert_eq!(ours, awas.clone().or_else(|| is_canonical.then(|| "awa".into())), "{values:?}");
        assert!(row.get::<_, bool>(2), "{values:?}");
        assert_eq!(row.get::<_, bool>(3), awas.is_some() || is_canonical, "{values:?}");
        both[usize::from(awas.is_some())] += 1;
    }
    assert!(both.iter().all(|count| *count > 20), "both engines were seen: {both:?}");
}
