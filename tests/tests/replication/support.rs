//! Two databases of a server, one of which subscribes to all tables of the other.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use awa_ingest_tests::{Cluster, DEADLINE, Db, Template, wait_until};
use std::time::Duration;
use tokio_postgres::Client;

/// A server that decodes its log, with a launcher that prunes every 20 ms. Tables are copied by many workers at a time, and
/// those that fail start again at once.
pub fn cluster() -> Arc<Cluster> {
    static SHARED: OnceLock<Arc<Cluster>> = OnceLock::new();
    let start = || {
        let mut settings = vec![
            ("shared_preload_libraries", "awa_ingest"),
            ("awa_ingest.prune_interval", "20ms"),
            ("wal_level", "logical"),
            ("max_wal_senders", "60"),
            ("max_replication_slots", "60"),
            ("max_worker_processes", "90"),
            ("max_logical_replication_workers", "50"),
            ("max_sync_workers_per_subscription", "4"),
            ("wal_retrieve_retry_interval", "100ms"),
        ];
        // Older servers take the number of slots for it.
        if major_version() >= 18 {
            settings.push(("max_active_replication_origins", "60"));
        }
        Cluster::start(&settings)
    };
    SHARED.get_or_init(start).clone()
}

/// Of the server's program: `postgres (PostgreSQL) 18.1`.
fn major_version() -> u32 {
    let program = std::path::PathBuf::from(std::env::var_os("AWA_INGEST_PG_BIN").expect("AWA_INGEST_PG_BIN")).join("postgres");
    let output = std::process::Command::new(program).arg("--version").output().expect("postgres --version").stdout;
    let version = String::from_utf8_lossy(&output).split_whitespace().nth(2).map(str::to_owned).expect("a version");
    version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse().ok()).expect("a number")
}

/// One side.
pub struct Side {
    pub db: Db,
    pub client: Client,
}

impl Side {
    /// A database with a user's own table.
    pub async fn new(template: Template) -> Self {
        let db = Db::on(cluster(), template).await;
        let client = db.connect().await;
        let side = Self { db, client };
        side.run("CREATE TABLE public.orders (id bigint PRIMARY KEY, what text); CREATE TABLE public.marks (mark bigint)").await;
        side
    }

    /// An empty database.
    pub async fn bare() -> Self {
        let db = Db::on(cluster(), Template::Bare).await;
        let client = db.connect().await;
        Self { db, client }
    }

    /// Runs statements.
    pub async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The one value of a query.
    pub async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, sql: &str) -> T {
        self.client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }

    /// Waits until a condition holds. Fails with what went wrong in the server.
    pub async fn until(&self, sql: &str) {
        let waiting = tokio::time::timeout(DEADLINE - Duration::from_secs(1), wait_until(&self.client, sql));
        if waiting.await.is_err() {
            let log = self.db.cluster().log();
            let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR") || line.contains("FATAL")).collect();
            panic!("still not true: {sql}\n{}", errors.join("\n"));
        }
    }

    /// Publishes all tables.
    pub async fn publish(&self, options: &str) {
        self.run(&format!("CREATE PUBLICATION everything FOR ALL TABLES {options}")).await;
    }

    /// The name of this side's subscription.
    pub fn subscription(&self) -> String {
        format!("sub_{}", self.db.name())
    }

    /// Subscribes to all that another side publishes. The slot is made by itself: in the transaction of CREATE SUBSCRIPTION it
    /// would wait for that, on the same server.
    pub async fn subscribe(&self, publisher: &Side, options: &str) {
        let name = self.subscription();
        publisher.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")).await;
        let source = format!("host=127.0.0.1 port={} user=postgres dbname={}", self.db.cluster().port(), publisher.db.name());
        self.run(&format!(
            "CREATE SUBSCRIPTION {name} CONNECTION '{source}' PUBLICATION everything
               WITH (create_slot = false, slot_name = '{name}' {options})"
        ))
        .await;
    }

    /// Waits until all tables were copied, and what the publisher has written so far has arrived.
    pub async fn catch_up(&self, publisher: &Side) {
        self.until("SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel").await;
        // Transactions are applied in the order of their commits.
        static MARKS: AtomicI64 = AtomicI64::new(0);
        let mark = MARKS.fetch_add(1, Ordering::Relaxed);
        publisher.run(&format!("INSERT INTO public.marks VALUES ({mark})")).await;
        self.until(&format!("SELECT count(*) = 1 FROM public.marks WHERE mark = {mark}")).await;
    }

    /// Has the user's own table replicated, and asserts that nothing went wrong on the way.
    pub async fn assert_goes_on(&self, publisher: &Side, order: i64) {
        publisher.run(&format!("INSERT INTO public.orders VALUES ({order}, 'tea')")).await;
        self.until(&format!("SELECT count(*) = 1 FROM public.orders WHERE id = {order}")).await;
        let errors = format!(
            "SELECT apply_error_count + sync_error_count FROM pg_stat_subscription_stats WHERE subname = '{}'",
            self.subscription()
        );
        assert_eq!(self.value::<i64>(&errors).await, 0, "{}", self.db.cluster().log());
    }

    /// The server's version.
    pub async fn version(&self) -> i32 {
        self.value::<i32>("SELECT current_setting('server_version_num')::integer / 10000").await
    }
}
