//! The engine is looked up on every call: prepared, in mixed transition, active, and back, in any schema, within a transaction and between.

use awa_ingest_tests::copy::copy_csv;
use awa_ingest_tests::{Db, OpenCopy, Session, assert_lanes_intact, failure, rows};
use awa_model::{QueueStorage, QueueStorageConfig};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::calls::{Way, deferred, keyed, last_jobs, plain, shown};
use crate::canonical::canonical;
use crate::{emptied, numbers, old};

/// A state of awa's transition.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Canonical,
    Prepared,
    MixedTransition,
    Active,
}

impl State {
    const ALL: [Self; 4] = [Self::Canonical, Self::Prepared, Self::MixedTransition, Self::Active];

    /// Sets it as awa's transition functions would, without what they ask of the workers.
    async fn set(self, client: &Client, schema: &str) {
        let (state, current, prepared) = match self {
            Self::Canonical => ("canonical", "canonical", None),
            Self::Prepared => ("prepared", "canonical", Some("queue_storage")),
            Self::MixedTransition => ("mixed_transition", "canonical", Some("queue_storage")),
            Self::Active => ("active", "queue_storage", None),
        };
        let details = if self == Self::Canonical { json!({}) } else { json!({"schema": schema}) };
        let update = "UPDATE awa.storage_transition_state
            SET state = $1, current_engine = $2, prepared_engine = $3, details = $4, transition_epoch = transition_epoch + 1";
        client.execute(update, &[&state, &current, &prepared, &details]).await.expect(update);
    }

    fn is_canonical(self) -> bool {
        matches!(self, Self::Canonical | Self::Prepared)
    }
}

/// Where the jobs are, as `table: numbers`.
async fn places(client: &Client, schema: &str) -> Vec<(String, Vec<i64>)> {
    let mut places = Vec::new();
    for table in ["awa.jobs_hot", "awa.scheduled_jobs", &format!("{schema}.ready_entries"), &format!("{schema}.deferred_jobs")] {
        places.push((table.to_owned(), numbers(client, table).await));
    }
    places
}

fn expected_places(canonical: &[i64], queue_storage: &[i64], schema: &str) -> Vec<(String, Vec<i64>)> {
    let of = |numbers: &[i64], rest: i64| numbers.iter().copied().filter(|n| n % 2 == rest).collect();
    vec![
        ("awa.jobs_hot".to_owned(), of(canonical, 0)),
        ("awa.scheduled_jobs".to_owned(), of(canonical, 1)),
        (format!("{schema}.ready_entries"), of(queue_storage, 0)),
        (format!("{schema}.deferred_jobs"), of(queue_storage, 1)),
    ]
}

/// One ready job, with an even number, and one deferred, with an odd one.
fn pair(n: i64) -> [awa_ingest_tests::copy::Row; 2] {
    [plain("q", n), deferred(plain("q", n + 1))]
}

/// A storage schema other than awa's.
async fn custom_schema(db: &Db) -> &'static str {
    let config = QueueStorageConfig { schema: "custom_q".to_owned(), ..Default::default() };
    QueueStorage::new(config).expect("a schema").prepare_schema(&db.pool().await).await.expect("prepare_schema");
    "custom_q"
}

async fn every_state_in(db: Db, schema: &'static str) {
    let client = db.connect().await;
    let (mut canonical, mut queue_storage) = (Vec::new(), Vec::new());
    let mut n = 0;
    for state in State::ALL.into_iter().chain([State::Canonical, State::Active]) {
        state.set(&client, schema).await;
        for way in Way::SKIPPING {
            let outcomes = way.skip(&client, &pair(n)).await.unwrap_or_else(|error| panic!("{way:?}, {state:?}: {error:?}"));
            let ids: Vec<i64> = outcomes.into_iter().flatten().collect();
            assert_eq!(shown(&client, &ids).await.len(), 2, "{way:?}, {state:?}: awa shows them");
            if matches!(way, Way::Copy | Way::Insert | Way::OnConflict) {
                assert_eq!(last_jobs(&client).await.expect("last_ingest_jobs"), shown(&client, &ids).await, "{way:?}, {state:?}");
            }
            let place = if state.is_canonical() { &mut canonical } else { &mut queue_storage };
            place.extend([n, n + 1]);
            n += 2;
        }
        // The replaced function goes the same way.
        old::insert(&client, "awa", &plain("q", n)).await.expect("insert_job_compat");
        (if state.is_canonical() { &mut canonical } else { &mut queue_storage }).push(n);
        n += 2;
        assert_eq!(places(&client, schema).await, expected_places(&canonical, &queue_storage, schema), "{state:?}");
    }
    assert_lanes_intact(&client, schema, "all states").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_in_awas_schema() {
    every_state_in(canonical().await, "awa").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_in_a_schema_of_its_own() {
    let db = canonical().await;
    let schema = custom_schema(&db).await;
    every_state_in(db, schema).await;
}

/// Another session flips the engine while a transaction is open: each statement goes where its snapshot says, and the commit fails where that is
/// another place than the last.
#[tokio::test(flavor = "multi_thread")]
async fn within_a_transaction() {
    let db = canonical().await;
    for way in Way::SKIPPING {
        let (client, operator) = (emptied(&db).await, db.connect().await);
        State::Canonical.set(&operator, "awa").await;
        client.batch_execute("BEGIN").await.unwrap();
        way.skip(&client, &pair(0)).await.expect("canonical");
        State::Active.set(&operator, "awa").await;
        way.skip(&client, &pair(2)).await.expect("queue storage");
        State::Canonical.set(&operator, "awa").await;
        way.skip(&client, &pair(4)).await.expect("canonical again");
        assert_eq!(places(&client, "awa").await, expected_places(&[0, 1, 4, 5], &[2, 3], "awa"), "{way:?}");
        // Nobody would work what is in queue storage.
        assert_eq!(failure(client.batch_execute("COMMIT").await).sqlstate, "40001", "{way:?}");
        assert_eq!(places(&client, "awa").await, expected_places(&[], &[], "awa"), "{way:?}");
    }
}

/// A transaction with an older snapshot goes on where that says, as awa's own function does, and fails at its commit; a foreign table's
/// statement, which looks once more at its end, may fail then.
#[tokio::test(flavor = "multi_thread")]
async fn under_an_old_snapshot() {
    let db = canonical().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for way in Way::SKIPPING {
            let (client, operator) = (emptied(&db).await, db.connect().await);
            State::Canonical.set(&operator, "awa").await;
            client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
            way.skip(&client, &pair(0)).await.expect("canonical");
            State::Active.set(&operator, "awa").await;
            let result = way.skip(&client, &pair(2)).await;
            match (way, result) {
                (Way::Copy | Way::Insert | Way::OnConflict, Err(error)) => {
                    assert_eq!(failure::<()>(Err(error)).sqlstate, "40001", "{way:?}, {level}");
                    client.batch_execute("ROLLBACK").await.unwrap();
                }
                (_, result) => {
                    result.unwrap_or_else(|error| panic!("{way:?}, {level}: {error:?}"));
                    assert_eq!(places(&client, "awa").await, expected_places(&[0, 1, 2, 3], &[], "awa"), "{way:?}, {level}");
                    assert_eq!(failure(client.batch_execute("COMMIT").await).sqlstate, "40001", "{way:?}, {level}");
                }
            }
            assert_eq!(places(&client, "awa").await, expected_places(&[], &[], "awa"), "{way:?}, {level}");
        }
    }
}

/// Keys are in one table for both engines.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_kept_over_a_flip() {
    let client = canonical().await.connect().await;
    for (key, way) in (0..).zip(Way::SKIPPING) {
        State::Canonical.set(&client, "awa").await;
        way.skip(&client, &[keyed(2 * key, "q", 0)]).await.expect("a holder");
        State::Active.set(&client, "awa").await;
        let outcomes =
            way.skip(&client, &[keyed(2 * key, "q", 2), deferred(keyed(2 * key + 1, "q", 1))]).await.expect("the next engine");
        assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true], "{way:?}");
        State::Prepared.set(&client, "awa").await;
        let outcomes = way.skip(&client, &[keyed(2 * key, "q", 2), keyed(2 * key + 1, "q", 2)]).await.expect("the first engine");
        assert_eq!(outcomes, [None, None], "{way:?}");
    }
}

/// A COPY under way when the engine flips writes to neither.
#[tokio::test(flavor = "multi_thread")]
async fn during_a_copy() {
    let db = canonical().await;
    for (before, after) in [
        (State::Canonical, State::Active),
        (State::Active, State::Canonical),
        (State::Prepared, State::MixedTransition),
        (State::MixedTransition, State::Prepared),
    ] {
        for table in ["awa.ingest", "awa.ingest_skip_conflicts"] {
            let observer = emptied(&db).await;
            before.set(&observer, "awa").await;
            let session = Session::open(&db).await;
            let mut copy: OpenCopy = session.copy(&format!("COPY {table} (kind, uniqueness) FROM STDIN WITH (FORMAT csv)")).await;
            copy.send("a,\nb,true\n").await.expect("sending");
            copy.wait_until_taken(&observer).await;
            after.set(&observer, "awa").await;
            let refused = failure(copy.finish().await);
            assert_eq!(refused.sqlstate, "40001", "{before:?} to {after:?}, {table}: {refused:?}");
            for (place, numbers) in places(&observer, "awa").await {
                assert!(numbers.is_empty(), "{before:?} to {after:?}, {table}: {place}");
            }
            assert_eq!(rows(&observer, "awa.job_unique_claims", &[]).await, [] as [Value; 0]);
            assert_eq!(copy_csv(&session.client, table, "kind", "a\n").await.expect("the next COPY"), 1);
        }
    }
    // What makes no difference to where jobs go is no reason to fail.
    let db = canonical().await;
    let observer = db.connect().await;
    let session = Session::open(&db).await;
    let mut copy = session.copy("COPY awa.ingest (kind) FROM STDIN WITH (FORMAT csv)").await;
    copy.send("a\n").await.expect("sending");
    copy.wait_until_taken(&observer).await;
    State::Prepared.set(&observer, "awa").await;
    assert_eq!(copy.finish().await.expect("still canonical"), 1);
}
