//! Producers that race for the same keys: each key goes to one job, nobody deadlocks, nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use awa_ingest_tests::{Db, Storage, backend_pid, failure, jobs, rows, wait_until_blocked, within};
use awa_model::{InsertOpts, InsertParams, UniqueOpts};
use jobs::Enqueued;
use rand::rngs::StdRng;
use rand::seq::index::sample;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_postgres::Client;

const PRODUCERS: u64 = 16;
const TRANSACTIONS: usize = 20;
const KEYS: usize = 400;

fn unique_job(key: usize, queue: &str, priority: i16) -> InsertParams {
    let unique = Some(UniqueOpts::default());
    jobs::job_with("once", json!(key), InsertOpts { queue: queue.into(), priority, unique, ..Default::default() })
}

/// Different keys in no order, on lanes in no order.
fn random_batch(rng: &mut StdRng) -> Vec<InsertParams> {
    let size = rng.random_range(1..12);
    let keys = sample(rng, KEYS, size);
    keys.into_iter().map(|key| unique_job(key, ["a", "b"][rng.random_range(0..2)], rng.random_range(1..=2))).collect()
}

/// What a producer was told for the batches it committed.
async fn produce(client: Client, seed: u64) -> Vec<Enqueued> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut committed = Vec::new();
    for _ in 0..TRANSACTIONS {
        client.batch_execute("BEGIN").await.unwrap();
        let answer = jobs::try_enqueue_batch(&client, &random_batch(&mut rng), "skip").await.expect("skipping raises nothing");
        if rng.random_bool(0.5) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..5))).await;
        }
        if rng.random_bool(0.3) {
            client.batch_execute("ROLLBACK").await.unwrap();
        } else {
            client.batch_execute("COMMIT").await.unwrap();
            committed.extend(answer);
        }
    }
    committed
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_goes_to_one_job() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let mut producers = JoinSet::new();
        for seed in 0..PRODUCERS {
            producers.spawn(produce(db.connect().await, seed));
        }
        let answers = within("the producers", producers.join_all()).await.concat();
        check_answers(&db, storage, &answers).await;
    }
}

async fn check_answers(db: &Db, storage: Storage, answers: &[Enqueued]) {
    let client = db.connect().await;
    let ready = rows(&client, &format!("(SELECT job_id, unique_key FROM {})", storage.table("ready_entries")), &[]).await;
    let claims = rows(&client, &storage.table("job_unique_claims"), &[]).await;
    awa_ingest_tests::assert_same_rows("each job holds its key", &ready, &claims);

    let keys: BTreeMap<_, _> = ready.iter().map(|r| (r["unique_key"].as_str().unwrap(), r["job_id"].as_i64().unwrap())).collect();
    assert_eq!(keys.len(), ready.len(), "a key goes to one job");
    let present: BTreeSet<i64> = keys.into_values().collect();
    let enqueued: BTreeSet<i64> = answers.iter().filter_map(|a| a.job_id).collect();
    assert_eq!(present, enqueued, "the jobs are those whose producers committed");
    for answer in answers {
        assert_ne!(answer.job_id.is_some(), answer.conflicts_with.is_some(), "{answer:?}");
        assert!(answer.conflicts_with.is_none_or(|holder| present.contains(&holder)), "the holder is there: {answer:?}");
    }
    assert!(answers.iter().any(|a| a.conflicts_with.is_some()), "producers did race");
}

/// A key that another transaction has claimed but not committed is waited for, and what that transaction does decides.
#[tokio::test(flavor = "multi_thread")]
async fn an_uncommitted_claim_is_waited_for() {
    for (storage, policy, ending) in Storage::BOTH.into_iter().flat_map(|s| {
        [("skip", "COMMIT"), ("skip", "ROLLBACK"), ("error", "COMMIT"), ("error", "ROLLBACK")].map(|(p, e)| (s, p, e))
    }) {
        let db = storage.db().await;
        let (holder, waiter, observer) = (db.connect().await, db.connect().await, db.connect().await);
        holder.batch_execute("BEGIN").await.unwrap();
        let held = jobs::enqueue(&holder, &unique_job(1, "a", 1)).await;
        let pid = backend_pid(&waiter).await;
        let batch = [unique_job(2, "b", 1), unique_job(1, "b", 1)];
        let waiting = tokio::spawn(async move { jobs::try_enqueue_batch(&waiter, &batch, policy).await });
        wait_until_blocked(&observer, pid).await;
        holder.batch_execute(ending).await.unwrap();
        let answer = within("the waiting batch", waiting).await.unwrap();

        let case = format!("{storage:?}, {policy}, {ending}");
        match (policy, ending) {
            (_, "ROLLBACK") => assert!(answer.expect(&case).iter().all(|a| a.job_id.is_some()), "{case}"),
            ("skip", _) => assert_eq!(answer.expect(&case)[1].conflicts_with, Some(held), "{case}"),
            _ => {
                let refused = failure(answer);
                assert_eq!((refused.constraint.as_str(), refused.ordinal()), ("idx_awa_jobs_unique", Some(2)), "{case}");
            }
        }
    }
}

/// A producer that waits for a key holds no lane meanwhile, so that others go on.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_key_holds_no_lane() {
    for storage in Storage::BOTH {
        let db = storage.db().await;
        let (holder, waiter, observer) = (db.connect().await, db.connect().await, db.connect().await);
        jobs::enqueue(&observer, &unique_job(0, "b", 1)).await;
        holder.batch_execute("BEGIN").await.unwrap();
        jobs::enqueue(&holder, &unique_job(1, "a", 1)).await;
        let pid = backend_pid(&waiter).await;
        let waiting = tokio::spawn(async move { jobs::try_enqueue_batch(&waiter, &[unique_job(1, "b", 1)], "skip").await });
        wait_until_blocked(&observer, pid).await;
        within("another producer", jobs::enqueue_batch(&observer, &[unique_job(2, "b", 1)])).await;
        holder.batch_execute("ROLLBACK").await.unwrap();
        assert!(within("the waiter", waiting).await.unwrap().unwrap()[0].job_id.is_some(), "{storage:?}");
    }
}
