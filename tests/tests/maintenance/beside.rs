//! awa's own leader turns and prunes the rings while several sessions prune, too, and jobs come and are worked: none is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use awa_ingest_tests::{Db, jobs, within};
use chrono::{TimeDelta, Utc};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::actor::{Actor, BATCHES, ROWS, Setup};
use crate::stage::{Stage, Step, job, maintain};

/// The shortest load. It goes on until enough has happened: a machine that has other things to do takes longer.
const LOAD: Duration = Duration::from_secs(60);
/// The longest.
const LATEST: Duration = Duration::from_secs(900);
/// Jobs that may wait: more would only take longer to be worked.
const BACKLOG: usize = 2000;
/// The worker ends jobs at this rate at least, or something is wrong.
const STALLED: Duration = Duration::from_secs(60);

/// The ring goes round at least once.
const SLOTS: i64 = 16;

/// What the sessions share.
struct Load {
    db: Db,
    enqueued: AtomicUsize,
    pruned: AtomicUsize,
    is_enough: AtomicBool,
    actor: Actor,
    is_over: AtomicBool,
}

/// Ids by queue, and of those the ones that fail.
#[derive(Default)]
struct Sent {
    ids: BTreeMap<&'static str, Vec<i64>>,
    failing: BTreeSet<i64>,
}

/// Enqueues until it is enough: of every hundred jobs one fails and ten are deferred.
async fn produce(load: Arc<Load>, producer: usize) -> Sent {
    let client = load.db.connect().await;
    let (mut sent, mut n) = (Sent::default(), producer * 7);
    while !load.is_enough.load(Ordering::Relaxed) {
        if load.enqueued.load(Ordering::Relaxed) > load.actor.started() + BACKLOG {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let queue = [ROWS, BATCHES][n % 2];
        let batch: Vec<_> = (0..10)
            .map(|place| {
                let mut job = job(queue, if (n + place) % 100 == 0 { "fail" } else { "complete" });
                job.opts.run_at = ((n + place) % 10 == 3).then(|| Utc::now() + TimeDelta::milliseconds(300));
                job
            })
            .collect();
        n += 10 + usize::from(n % 20 == 0);
        let enqueued = jobs::enqueue_batch(&client, &batch).await;
        load.enqueued.fetch_add(batch.len(), Ordering::Relaxed);
        for (job, enqueued) in batch.iter().zip(enqueued) {
            let id = enqueued.job_id.expect("an id");
            sent.ids.entry(queue).or_default().push(id);
            if job.args["end"] == "fail" {
                sent.failing.insert(id);
            }
        }
    }
    sent
}

/// Prunes again and again. Returns how often each ring had which outcome.
async fn prune(load: Arc<Load>) -> BTreeMap<(String, String), usize> {
    let client = load.db.connect().await;
    let mut outcomes = BTreeMap::new();
    while !load.is_over.load(Ordering::Relaxed) {
        let steps: Vec<Step> = maintain(&client, "prune").await;
        for step in steps {
            assert_ne!(step.outcome, "failed", "{step:?}");
            load.pruned.fetch_add(usize::from(step.outcome == "pruned"), Ordering::Relaxed);
            *outcomes.entry((step.ring.unwrap_or_default(), step.outcome)).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    outcomes
}

/// Waits until all jobs were started.
async fn drain(load: &Load) {
    let (mut started, mut since) = (0, Instant::now());
    while started < load.enqueued.load(Ordering::Relaxed) {
        assert!(since.elapsed() < STALLED, "the worker got {started} jobs and gets no more");
        tokio::time::sleep(Duration::from_millis(50)).await;
        if load.actor.started() > started {
            (started, since) = (load.actor.started(), Instant::now());
        }
    }
}

async fn joined<T>(what: &str, tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::new();
    for task in tasks {
        results.push(within(what, task).await.expect(what));
    }
    results
}

/// The ring has gone round, there were many jobs, and both sides have pruned: who comes first to a slot is a matter of luck, and awa comes
/// right after it has turned the ring.
async fn wait_until_enough(load: &Load, client: &Client) {
    let begun = Instant::now();
    loop {
        let generation = "SELECT generation FROM awa.queue_ring_state";
        let turned: i64 = client.query_one(generation, &[]).await.expect(generation).get(0);
        let (enqueued, pruned) = (load.enqueued.load(Ordering::Relaxed), load.pruned.load(Ordering::Relaxed));
        if begun.elapsed() > LOAD && turned > SLOTS && enqueued > 1000 && pruned > 2 {
            return;
        }
        assert!(begun.elapsed() < LATEST, "{enqueued} jobs, {pruned} prunes, the ring at {turned}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minute_of_load() {
    let stage = Stage::new().await;
    let setup = Setup { rotate_every: Duration::from_millis(100), max_workers: 50, ..Setup::default() };
    let actor = Actor::start(&stage.db, setup).await;
    let Stage { db, client, pool, store, schema } = stage;
    let (is_enough, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (enqueued, pruned) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let load = Arc::new(Load { db, enqueued, pruned, actor, is_enough, is_over });
    let pruning: Vec<_> = (0..3).map(|_| tokio::spawn(prune(load.clone()))).collect();
    let producing: Vec<_> = (0..3).map(|n| tokio::spawn(produce(load.clone(), n))).collect();
    wait_until_enough(&load, &client).await;
    load.is_enough.store(true, Ordering::Relaxed);
    let sent = joined("a producer", producing).await;
    drain(&load).await;
    load.is_over.store(true, Ordering::Relaxed);
    let outcomes = joined("a prune", pruning).await;
    let Ok(Load { db, actor, .. }) = Arc::try_unwrap(load) else { panic!("all tasks are over") };
    let stage = Stage { db, client, pool, store, schema };
    stage.settle().await;
    let worked: Vec<i64> = actor.stop().await.iter().map(|job| job.id).collect();
    assert_nothing_is_lost(&stage, &sent, worked).await;
    tell(&stage, &outcomes).await;
}

async fn assert_nothing_is_lost(stage: &Stage, sent: &[Sent], mut worked: Vec<i64>) {
    let mut ids: Vec<i64> = sent.iter().flat_map(|sent| sent.ids.values().flatten()).copied().collect();
    ids.sort_unstable();
    worked.sort_unstable();
    let twice = worked.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!((worked.len(), twice), (ids.len(), 0), "each job was worked once");
    assert!(worked == ids, "those that were enqueued");
    for queue in [ROWS, BATCHES] {
        let expected: usize = sent.iter().map(|sent| sent.ids.get(queue).map_or(0, Vec::len)).sum();
        let counts = stage.counts(queue).await;
        let found = (counts.available, counts.running, counts.terminal, counts.pruned_failed);
        assert_eq!(found, (0, 0, expected as i64, 0), "{queue}");
    }
    let failing: BTreeSet<i64> = sent.iter().flat_map(|sent| &sent.failing).copied().collect();
    let failed = "SELECT array_agg(id ORDER BY id) FROM awa.jobs WHERE state = 'failed'";
    let failed: Vec<i64> = stage.value(failed).await;
    assert_eq!(failed, failing.into_iter().collect::<Vec<_>>(), "failed jobs are there, each once");
}

/// Says how the rings turned, and what both sides met.
async fn tell(stage: &Stage, outcomes: &[BTreeMap<(String, String), usize>]) {
    let mut sums: BTreeMap<_, usize> = BTreeMap::new();
    for ((ring, outcome), n) in outcomes.iter().flatten() {
        *sums.entry((&**ring, &**outcome)).or_default() += n;
    }
    let turned: i64 = stage.value("SELECT generation FROM awa.queue_ring_state").await;
    let total: i64 = stage.counts(ROWS).await.terminal + stage.counts(BATCHES).await.terminal;
    println!("{total} jobs, the ring at {turned}, {sums:?}");
}
