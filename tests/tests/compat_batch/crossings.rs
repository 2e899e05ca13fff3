//! Deadlocks between a statement that skips and another producer, made one step after the other: the one that skips gives way, and its
//! caller learns nothing of it.

use std::sync::Arc;

use awa_ingest_tests::copy::Row;
use awa_ingest_tests::{Db, Session, assert_lanes_intact, backend_pid, rows, wait_until, wait_until_blocked, within};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error};

use crate::calls::{Way, keyed, plain};
use crate::numbers;
use crate::old::{attached_with_original, insert_original};

/// Who stands in the way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    /// awa's own function, which takes its locks job by job.
    Awa,
    /// A call of the extension that raises on conflicts, and does not give way.
    Extension,
}

impl Other {
    async fn insert(self, client: &Client, row: &Row) -> Result<(), Error> {
        match self {
            Self::Awa => insert_original(client, row).await.map(drop),
            Self::Extension => Way::Batch.enqueue(client, std::slice::from_ref(row)).await.map(drop),
        }
    }
}

/// The sessions of a crossing. Only the one that skips looks for deadlocks in time, so that it is the one that has to give way.
pub struct Stage {
    pub ours: Arc<Client>,
    pub other: Arc<Client>,
    pub observer: Client,
    pid: i32,
}

/// What the scene before has left. Lanes stay: their names are different each time where that matters.
const CLEAR: &str = "TRUNCATE awa.ready_entries, awa.ready_segments, awa.deferred_jobs, awa.job_unique_claims";

impl Stage {
    /// An empty stage, but for the lane `q`.
    pub async fn new(db: &Db, deadlock_timeout: &str) -> Self {
        let (ours, other, observer) = (db.connect().await, db.connect().await, db.connect().await);
        ours.batch_execute(&format!("SET deadlock_timeout = '{deadlock_timeout}'")).await.unwrap();
        other.batch_execute("SET deadlock_timeout = '1min'").await.unwrap();
        Way::Batch.enqueue(&observer, &[plain("q", 0)]).await.expect("a known lane");
        observer.batch_execute(CLEAR).await.expect(CLEAR);
        let pid = backend_pid(&ours).await;
        Self { ours: Arc::new(ours), other: Arc::new(other), observer, pid }
    }

    /// Waits until the statement that skips runs since this interval.
    pub async fn wait_until_old(&self, interval: &str) {
        let old = format!("SELECT clock_timestamp() - query_start > '{interval}' FROM pg_stat_activity WHERE pid = {}", self.pid);
        wait_until(&self.observer, &old).await;
    }

    /// Starts the statement that skips and waits until it waits.
    pub async fn start(&self, way: Way, batch: &[Row]) -> JoinHandle<Result<Vec<Option<i64>>, Error>> {
        let (ours, batch) = (self.ours.clone(), batch.to_vec());
        let statement = tokio::spawn(async move { way.skip(&ours, &batch).await });
        wait_until_blocked(&self.observer, self.pid).await;
        statement
    }

    /// Stops the process of the session that skips, or lets it go on.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: a signal to the backend of a session that this test has open.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0, "{}", std::io::Error::last_os_error());
    }

    /// Cancels what the session that skips is doing.
    pub async fn cancel(&self) {
        self.observer.execute("SELECT pg_cancel_backend($1)", &[&self.pid]).await.expect("pg_cancel_backend");
    }

    /// Fails unless what is stored is what the statement said, every key has one holder, and lanes are intact.
    pub async fn assert_consistent(&self, batch: &[Row], outcomes: &[Option<i64>], when: &str) {
        assert_lanes_intact(&self.observer, "awa", when).await;
        let stored = "(SELECT job_id FROM awa.ready_entries UNION ALL SELECT job_id FROM awa.deferred_jobs)";
        let dangling = format!("(SELECT * FROM awa.job_unique_claims WHERE job_id NOT IN {stored})");
        assert_eq!(rows(&self.observer, &dangling, &[]).await, [] as [Value; 0], "{when}");
        let ids: Vec<i64> = outcomes.iter().flatten().copied().collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{when}: {outcomes:?}");
        for (row, id) in batch.iter().zip(outcomes).filter_map(|(row, id)| id.map(|id| (row, id))) {
            let sql = "SELECT args FROM awa.ready_entries WHERE job_id = $1 UNION ALL SELECT args FROM awa.deferred_jobs WHERE job_id = $1";
            let args: Value = self.observer.query_one(sql, &[&id]).await.expect(when).get(0);
            assert_eq!(Some(&args), row.args.as_ref(), "{when}");
        }
    }
}

/// The batch of most crossings: keys and lanes, known and new, in no order. Lanes are new in each scene.
fn batch(scene: &str) -> Vec<Row> {
    let new = format!("{NEW} {scene}");
    vec![keyed(5, &new, 0), plain("q", 1), keyed(1, "q", 2), keyed(9, &format!("a {new}"), 3), plain(&new, 4)]
}

/// The same without any key: who skips, skips also where there is nothing to skip.
fn keyless(scene: &str) -> Vec<Row> {
    batch(scene).into_iter().map(|row| Row { unique_key: None, unique_states: None, ..row }).collect()
}

/// The name of a lane that the batch creates, up to the scene.
const NEW: &str = "new in";

/// `first` is what the other one has when the batch starts, `second` what it asks for while the batch waits; `lost` are the places of the
/// batch that are taken if the other one commits.
struct Crossing {
    batch: fn(&str) -> Vec<Row>,
    other: Other,
    first: Row,
    second: Row,
    lost: &'static [usize],
}

impl Crossing {
    /// Every way to skip, with both endings of the other transaction.
    async fn play_all(self) {
        let db = attached_with_original(None).await;
        for way in Way::SKIPPING {
            for ending in ["COMMIT", "ROLLBACK"] {
                self.play(&db, way, ending).await;
            }
        }
    }

    async fn play(&self, db: &Db, way: Way, ending: &str) {
        let when = format!("{way:?}, {ending}");
        let stage = Stage::new(db, "200ms").await;
        let sent = (self.batch)(&when);
        stage.other.batch_execute("BEGIN").await.unwrap();
        self.other.insert(&stage.other, &self.first).await.expect("nobody holds anything yet");
        let statement = stage.start(way, &sent).await;
        let second = Row {
            queue: self.second.queue.as_ref().map(|queue| queue.replace(NEW, &format!("{NEW} {when}"))),
            ..self.second.clone()
        };
        within(&when, self.other.insert(&stage.other, &second)).await.expect("the one that skips gives way");
        stage.other.batch_execute(ending).await.unwrap();

        let outcomes = within(&when, statement).await.unwrap().unwrap_or_else(|error| panic!("{when}: {error:?}"));
        let lost = if ending == "COMMIT" { self.lost } else { &[] };
        let kept: Vec<bool> = (0..sent.len()).map(|at| !lost.contains(&at)).collect();
        assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), kept, "{when}");
        stage.assert_consistent(&sent, &outcomes, &when).await;
        let others: &[i64] = if ending == "COMMIT" { &[100, 101] } else { &[] };
        let expected = (0..5).filter(|at| kept[*at as usize]).chain(others.iter().copied()).collect::<Vec<_>>();
        let mut stored = numbers(&stage.observer, "awa.ready_entries").await;
        stored.sort_unstable();
        assert_eq!(stored, expected, "{when}");
        // The session and its lanes are as good as any.
        let again = way.skip(&stage.ours, &sent).await.expect(&when);
        let keyless: Vec<bool> = sent.iter().map(|row| row.unique_key.is_none()).collect();
        assert_eq!(again.iter().map(Option::is_some).collect::<Vec<_>>(), keyless, "{when}: again");
        assert_lanes_intact(&stage.observer, "awa", &when).await;
    }
}

/// The other one holds a lane and asks for our key, while we hold the key and ask for the lane.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_and_a_lane() {
    Crossing { batch, other: Other::Awa, first: plain("q", 100), second: keyed(1, "elsewhere", 101), lost: &[2] }.play_all().await;
}

/// Each holds a key that the other asks for.
#[tokio::test(flavor = "multi_thread")]
async fn two_keys() {
    let crossing =
        Crossing { batch, other: Other::Awa, first: keyed(9, "elsewhere", 100), second: keyed(1, "elsewhere", 101), lost: &[2, 3] };
    crossing.play_all().await;
}

/// The other one has the last lane of the batch and asks for the first, which it may have to create.
#[tokio::test(flavor = "multi_thread")]
async fn two_lanes() {
    Crossing { batch, other: Other::Awa, first: plain("q", 100), second: plain(NEW, 101), lost: &[] }.play_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_lanes_and_no_key() {
    Crossing { batch: keyless, other: Other::Awa, first: plain("q", 100), second: plain(NEW, 101), lost: &[] }.play_all().await;
}

/// The extension itself, where it raises, takes the locks of one call in order, but not those of two.
#[tokio::test(flavor = "multi_thread")]
async fn two_calls_of_the_extension() {
    let crossing = |first, second, lost| Crossing { batch, other: Other::Extension, first, second, lost };
    crossing(plain("q", 100), plain(&format!("a {NEW}"), 101), &[]).play_all().await;
    crossing(plain("q", 100), keyed(1, "elsewhere", 101), &[2]).play_all().await;
}

/// Two others lock each other out, one of them in the queue behind ours for a lane: ours holds nothing at all, but is part of the circle
/// that the server finds, and would be ended for it.
#[tokio::test(flavor = "multi_thread")]
async fn behind_a_deadlock_of_others() {
    let db = attached_with_original(None).await;
    for way in Way::SKIPPING {
        let stage = Stage::new(&db, "400ms").await;
        let last = Arc::new(db.connect().await);
        let last_pid = backend_pid(&last).await;
        stage.other.batch_execute("SET deadlock_timeout = '1s'; BEGIN").await.unwrap();
        insert_original(&stage.other, &plain("q", 100)).await.expect("a lane");
        last.batch_execute("SET deadlock_timeout = '1min'; BEGIN").await.unwrap();
        insert_original(&last, &plain("r", 101)).await.expect("another lane");

        let sent = [plain("q", 0)];
        let statement = stage.start(way, &sent).await;
        let behind = {
            let last = last.clone();
            tokio::spawn(async move { insert_original(&last, &plain("q", 102)).await })
        };
        wait_until_blocked(&stage.observer, last_pid).await;
        let ended = within("the deadlock", insert_original(&stage.other, &plain("r", 103))).await;
        assert_eq!(awa_ingest_tests::failure(ended).sqlstate, "40P01", "{way:?}: one of the two that do hold something");
        stage.other.batch_execute("ROLLBACK").await.unwrap();
        within("the one behind", behind).await.unwrap().expect("a lane");
        last.batch_execute("COMMIT").await.unwrap();
        let outcomes = within("the statement", statement).await.unwrap().unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        stage.assert_consistent(&sent, &outcomes, &format!("{way:?}")).await;
        assert!(outcomes[0].is_some(), "{way:?}");
    }
}

/// One that comes back each time: with each attempt it has one more of our keys, from the last to the first, and asks for the next. The
/// later attempts wait long enough for the deadlock to be found.
#[tokio::test(flavor = "multi_thread")]
async fn again_and_again() {
    let db = attached_with_original(None).await;
    for (way, ending) in Way::SKIPPING.into_iter().zip(["COMMIT", "ROLLBACK"].into_iter().cycle()) {
        let stage = Stage::new(&db, "300ms").await;
        let sent: Vec<Row> = (0..7).map(|n| keyed(n, "q", i64::from(n))).collect();
        stage.other.batch_execute("BEGIN").await.unwrap();
        insert_original(&stage.other, &plain("q", 100)).await.expect("the lane");
        let statement = stage.start(way, &sent).await;
        for key in (2..7).rev() {
            let again = keyed(key, "q", i64::from(key) + 100);
            within("the other one", insert_original(&stage.other, &again)).await.expect("the one that skips gives way");
            wait_until_blocked(&stage.observer, stage.pid).await;
        }
        stage.other.batch_execute(ending).await.unwrap();
        let outcomes = within("the statement", statement).await.unwrap().unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        let enqueued = if ending == "COMMIT" { 2 } else { 7 };
        let expected: Vec<bool> = (0..7).map(|n| n < enqueued).collect();
        assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), expected, "{way:?}");
        stage.assert_consistent(&sent, &outcomes, &format!("{way:?}")).await;
    }
}

/// Thousands of jobs, spilled to disk, of which the attempt that is taken back had placed many.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_starts_again() {
    let db = attached_with_original(None).await;
    for way in Way::SKIPPING {
        let stage = Stage::new(&db, "400ms").await;
        stage.ours.batch_execute("SET awa_ingest.batch_memory = '64kB'; SET work_mem = '64kB'").await.unwrap();
        // Keys descend, and are taken in blocks: one of them only while the batch waits.
        let new = format!("new to {way:?}");
        let sent: Vec<Row> = (0..3000).map(|n| keyed(2999 - n, [&*new, "q", "q2"][n as usize / 7 % 3], i64::from(n))).collect();
        let is_held = |n: usize| (n / 50).is_multiple_of(3);
        let held: Vec<Row> = (0..3000).filter(|n| is_held(*n)).map(|n| keyed(2999 - n as u32, "held", n as i64 + 10_000)).collect();
        Way::Batch.enqueue(&stage.observer, &held).await.expect("holders");
        stage.other.batch_execute("BEGIN").await.unwrap();
        insert_original(&stage.other, &plain("q", 20_000)).await.expect("the lane");
        let statement = stage.start(way, &sent).await;
        let later = keyed(2999 - 60, "q", 20_001);
        within("the other one", insert_original(&stage.other, &later)).await.expect("the one that skips gives way");
        stage.other.batch_execute("COMMIT").await.unwrap();

        let outcomes = within("the batch", statement).await.unwrap().unwrap_or_else(|error| panic!("{way:?}: {error:?}"));
        let expected: Vec<bool> = (0..3000).map(|n| !is_held(n) && n != 60).collect();
        assert_eq!(outcomes.iter().map(Option::is_some).collect::<Vec<_>>(), expected, "{way:?}");
        assert_lanes_intact(&stage.observer, "awa", "a large batch").await;
        assert_close_up_in_order(&stage.observer, way).await;
        assert_eq!(numbers(&stage.observer, "awa.ready_entries WHERE (args->>'n')::int < 3000").await, trues(&expected), "{way:?}");
        Session::assert_no_temporary_files(stage.pid, &stage.observer, "after a large batch").await;
    }
}

fn trues(flags: &[bool]) -> Vec<i64> {
    (0..).zip(flags).filter(|(_, flag)| **flag).map(|(n, _)| n).collect()
}

/// Within each lane of the batch ids and positions ascend together in the order of the input, in one run.
async fn assert_close_up_in_order(observer: &Client, way: Way) {
    let broken = "(SELECT * FROM (SELECT queue, lane_seq, job_id, (args->>'n')::bigint AS n,
            lag(lane_seq) OVER lane AS seq_before, lag(job_id) OVER lane AS id_before, lag((args->>'n')::bigint) OVER lane AS n_before
            FROM awa.ready_entries WHERE (args->>'n')::bigint BETWEEN 0 AND 2999 WINDOW lane AS (PARTITION BY queue ORDER BY lane_seq)) AS ready
        WHERE lane_seq <> seq_before + 1 OR job_id < id_before OR n < n_before)";
    assert_eq!(rows(observer, broken, &[]).await, [] as [Value; 0], "{way:?}");
}
