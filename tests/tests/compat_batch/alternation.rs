//! One process that goes from database to database: attached, older and without the extension's functions, and attached again. What awa's
//! client does in the caller's transactions holds in each, and nothing about one shows in another.

use std::collections::BTreeMap;

use awa_ingest_tests::{Db, Template, failure, jobs};
use awa_model::{AwaError, InsertOpts, InsertParams, JobRow, UniqueOpts, insert_many, insert_many_copy, insert_with};
use serde::Serialize;
use serde_json::json;
use sqlx::{PgPool, Postgres, Transaction};

use crate::attached;

/// The last version whose function takes the same arguments, but which has no queue storage yet.
const OLDER: i32 = 22;

#[derive(Serialize)]
struct Step {
    n: i64,
}

impl awa_model::JobArgs for Step {
    fn kind() -> &'static str {
        "step"
    }
}

/// A database with a pool, and what it should hold.
struct Place {
    _db: Db,
    pool: PgPool,
    jobs: Vec<i64>,
    holders: BTreeMap<i64, i64>,
    orders: Vec<i64>,
}

impl Place {
    async fn of(db: Db) -> Self {
        db.connect().await.batch_execute("CREATE TABLE orders (n bigint)").await.unwrap();
        Self { pool: db.pool().await, _db: db, jobs: Vec::new(), holders: BTreeMap::new(), orders: Vec::new() }
    }

    async fn begin(&self) -> Open<'_> {
        Open {
            tx: self.pool.begin().await.expect("BEGIN"),
            jobs: self.jobs.clone(),
            holders: self.holders.clone(),
            orders: self.orders.clone(),
        }
    }

    /// What is there is what was committed there, in the order in which it was asked for.
    async fn assert_as_expected(&self, when: &str) {
        let jobs: Vec<i64> =
            sqlx::query_scalar("SELECT (args->>'n')::bigint FROM awa.jobs ORDER BY id").fetch_all(&self.pool).await.expect(when);
        let orders: Vec<i64> = sqlx::query_scalar("SELECT n FROM orders ORDER BY n").fetch_all(&self.pool).await.expect(when);
        assert_eq!((&jobs, &orders), (&self.jobs, &self.orders), "{when}");
        let claims: i64 = sqlx::query_scalar("SELECT count(*) FROM awa.job_unique_claims").fetch_one(&self.pool).await.expect(when);
        assert_eq!(claims as usize, self.holders.len(), "{when}");
    }
}

/// A transaction of the caller, with what the database should hold if it commits.
struct Open<'a> {
    tx: Transaction<'a, Postgres>,
    jobs: Vec<i64>,
    holders: BTreeMap<i64, i64>,
    orders: Vec<i64>,
}

fn queue(n: i64) -> String {
    ["mail", "reports"][n as usize % 2].to_owned()
}

fn unique() -> Option<UniqueOpts> {
    // The key is that of the kind alone, which is one for each key of the test.
    Some(UniqueOpts { by_args: false, ..Default::default() })
}

fn job(n: i64) -> InsertParams {
    let opts = InsertOpts { queue: queue(n), priority: 1 + (n % 4) as i16, ..Default::default() };
    let run_at = (n % 5 == 0).then(|| "2041-05-06T07:08:09Z".parse().expect("a time"));
    jobs::job_with("step", json!({"n": n}), InsertOpts { run_at, tags: vec!["t".to_owned(); n as usize % 3], ..opts })
}

fn unique_job(key: i64, n: i64) -> InsertParams {
    let mut job = job(n);
    job.kind = format!("key {key}");
    job.opts.unique = unique();
    job
}

#[track_caller]
fn assert_in_order(returned: &[JobRow], expected: &[i64]) {
    let numbers: Vec<i64> = returned.iter().map(|job| job.args["n"].as_i64().expect("a number")).collect();
    assert_eq!(numbers, expected);
    assert!(returned.is_sorted_by(|a, b| a.id < b.id));
}

impl Open<'_> {
    /// A write of the application.
    async fn order(&mut self, n: i64) {
        sqlx::query("INSERT INTO orders VALUES ($1)").bind(n).execute(&mut *self.tx).await.expect("an order");
        self.orders.push(n);
    }

    async fn insert(&mut self, n: i64) {
        let opts = InsertOpts { queue: queue(n), metadata: json!({"order": n}), ..Default::default() };
        let inserted = insert_with(&mut *self.tx, &Step { n }, opts).await.expect("insert_with");
        assert_eq!((inserted.kind.as_str(), &inserted.args, inserted.queue), ("step", &json!({"n": n}), queue(n)));
        assert_eq!(inserted.metadata, json!({"order": n}));
        self.jobs.push(n);
    }

    async fn insert_many(&mut self, numbers: std::ops::Range<i64>) {
        let batch: Vec<_> = numbers.clone().map(job).collect();
        let numbers: Vec<i64> = numbers.collect();
        assert_in_order(&insert_many(&mut *self.tx, &batch).await.expect("insert_many"), &numbers);
        self.jobs.extend(numbers);
    }

    /// Keys that may be held in this database, and twice in the batch.
    async fn insert_many_copy(&mut self, keys: &[i64], first: i64) {
        let batch: Vec<_> = keys.iter().zip(first..).map(|(key, n)| unique_job(*key, n)).collect();
        let returned = insert_many_copy(&mut self.tx, &batch).await.expect("insert_many_copy");
        let mut expected = Vec::new();
        for (key, n) in keys.iter().zip(first..) {
            self.holders.entry(*key).or_insert_with(|| {
                expected.push(n);
                n
            });
        }
        assert_in_order(&returned, &expected);
        self.jobs.extend(expected);
    }

    /// One key that is held, in a savepoint, which the caller then goes on without.
    async fn conflict(&mut self, key: i64, n: i64) {
        assert!(self.holders.contains_key(&key));
        let mut savepoint = sqlx::Acquire::begin(&mut self.tx).await.expect("SAVEPOINT");
        let refused = insert_many(&mut *savepoint, &[job(n), unique_job(key, n)]).await.expect_err("a conflict");
        let AwaError::Database(sqlx::Error::Database(report)) = &refused else { panic!("{refused:?}") };
        assert_eq!((report.code().as_deref(), report.constraint()), (Some("23505"), Some("idx_awa_jobs_unique")), "{report:?}");
        savepoint.rollback().await.expect("ROLLBACK TO SAVEPOINT");
    }

    /// Ends it, and gives back what the database should then hold, if that has changed.
    async fn end(self, commit: bool) -> Option<(Vec<i64>, BTreeMap<i64, i64>, Vec<i64>)> {
        if commit {
            self.tx.commit().await.expect("COMMIT");
            Some((self.jobs, self.holders, self.orders))
        } else {
            self.tx.rollback().await.expect("ROLLBACK");
            None
        }
    }
}

async fn older() -> Db {
    let db = Db::of(Template::Bare).await;
    let client = db.connect().await;
    for (version, _, sql) in awa_model::migrations::migration_sql_range(0, OLDER) {
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("version {version}: {error:?}"));
    }
    client.batch_execute("CREATE EXTENSION awa_ingest").await.unwrap();
    // The extension knows no such awa, and says so; awa's own is as it was.
    for refused in ["SELECT awa_ingest.attach()", "SELECT awa.enqueue('k')"] {
        assert_eq!(failure(client.batch_execute(refused).await).sqlstate, "55000", "{refused}");
    }
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_alternate() {
    let mut places = [Place::of(attached().await).await, Place::of(older().await).await, Place::of(attached().await).await];
    for round in 0..12_i64 {
        // One call after the other goes to another database; the transactions are open side by side.
        let first = round * 1000;
        let mut open = Vec::new();
        for place in &places {
            open.push(place.begin().await);
        }
        for (at, open) in (0..).zip(&mut open) {
            open.order(first + at).await;
        }
        for (at, open) in (0..).zip(&mut open) {
            open.insert(first + at).await;
        }
        for (at, open) in (0..).zip(&mut open) {
            open.insert_many(first + 10 + at..first + 20).await;
        }
        // Partly the same keys in all of them, each with holders of its own.
        for (at, open) in (0..).zip(&mut open) {
            open.insert_many_copy(&[round, 100 + at, round, round / 2, 100 + 10 * at + round], first + 100).await;
        }
        for open in open.iter_mut().rev() {
            open.conflict(round, first + 200).await;
            open.order(first + 500).await;
            open.insert_many(first + 300..first + 303).await;
        }
        let mut ended = Vec::new();
        for (at, open) in (0..).zip(open) {
            ended.push(open.end((round + at) % 3 != 0).await);
        }
        for (place, ended) in places.iter_mut().zip(ended) {
            if let Some((jobs, holders, orders)) = ended {
                (place.jobs, place.holders, place.orders) = (jobs, holders, orders);
            }
        }
        for (at, place) in places.iter().enumerate() {
            place.assert_as_expected(&format!("round {round}, database {at}")).await;
        }
    }
    // They did differ.
    assert!(places[0].jobs != places[1].jobs && places[0].jobs != places[2].jobs && places[1].jobs != places[2].jobs);
    let engines = "SELECT awa.active_storage_engine()";
    for (place, engine) in places.iter().zip(["queue_storage", "canonical", "queue_storage"]) {
        assert_eq!(sqlx::query_scalar::<_, String>(engines).fetch_one(&place.pool).await.expect(engines), engine);
    }
}
