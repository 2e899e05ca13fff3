//! The databases that are measured, and the tables in them that a candidate fills.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use tokio_postgres::{Client, NoTls};

/// Database with awa's queue storage, the extension beside it where there is one, and the floor. awa's functions are its own here.
const AWA: &str = "bench_awa";
/// The same with awa's function replaced by the extension's.
const ATTACHED: &str = "bench_attached";
/// Database with the extension's own storage.
const EMBEDDED: &str = "bench_embedded";
/// A copy of awa's ready partition, keys and indexes included.
const FLOOR_TABLES: &str = "
    CREATE SCHEMA bench_floor;
    CREATE TABLE bench_floor.ready_entries (LIKE awa.ready_entries INCLUDING ALL)
        PARTITION BY LIST (ready_slot);
    CREATE TABLE bench_floor.ready_entries_0
        PARTITION OF bench_floor.ready_entries FOR VALUES IN (0);
    CREATE INDEX ON bench_floor.ready_entries_0 (job_id);
    CREATE INDEX ON bench_floor.ready_entries_0 (queue, priority, enqueue_shard, lane_seq)";

/// Where a candidate's jobs end up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Awa,
    Attached,
    Embedded,
    Floor,
}

/// How much of the extension the server has, in the order in which it was built.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offer {
    /// None of it.
    Nothing,
    /// Functions that take jobs as JSON or arrays.
    Functions,
    /// Foreign tables for COPY, and CSV, too.
    ForeignTables,
    /// A function in the place of awa's, too.
    Replacement,
}

impl Store {
    fn schema(self) -> &'static str {
        match self {
            Self::Awa | Self::Attached => "awa",
            Self::Embedded => "awa_ingest",
            Self::Floor => "bench_floor",
        }
    }

    fn database(self) -> &'static str {
        match self {
            Self::Awa | Self::Floor => AWA,
            Self::Attached => ATTACHED,
            Self::Embedded => EMBEDDED,
        }
    }
}

/// The prepared databases, with a connection to each for what happens outside the timing.
pub struct Stores {
    socket: String,
    awa: Client,
    /// None where the server has no extension to install.
    embedded: Option<Client>,
    /// None where the extension replaces nothing.
    attached: Option<Client>,
    pub offer: Offer,
}

impl Stores {
    pub async fn create(socket: &Path) -> Result<Self> {
        let socket = socket.to_str().context("the server's folder is not UTF-8")?.to_owned();
        let awa = database_with_awa(&socket, AWA).await?;
        awa.batch_execute(FLOOR_TABLES).await.context("cannot create the floor's tables")?;
        let mut stores = Self { socket, awa, embedded: None, attached: None, offer: Offer::Nothing };
        if has_extension(&stores.awa).await? {
            stores.add_extension().await?;
        }
        Ok(stores)
    }

    async fn add_extension(&mut self) -> Result<()> {
        let embedded = create_database(&self.socket, EMBEDDED).await?;
        for client in [&embedded, &self.awa] {
            create_extension(client).await?;
        }
        self.offer = offer(&embedded).await?;
        self.embedded = Some(embedded);
        if self.offer == Offer::Replacement {
            let attached = database_with_awa(&self.socket, ATTACHED).await?;
            create_extension(&attached).await?;
            attached.batch_execute("SELECT awa_ingest.attach()").await.context("cannot attach the extension")?;
            self.attached = Some(attached);
        }
        Ok(())
    }

    /// The server's own idea of its version and of today.
    pub async fn version_and_date(&self) -> Result<(String, String)> {
        version_and_date(&self.awa).await
    }

    /// A connection of its own for a candidate.
    pub async fn connect(&self, store: Store) -> Result<Client> {
        connect(&self.socket, store.database()).await
    }

    /// A pool of one connection for a candidate that goes through awa's client.
    pub async fn pool(&self, store: Store) -> Result<PgPool> {
        pool(&self.socket, store.database()).await
    }

    /// Empties what a round has filled, and lets every block start right after a checkpoint.
    pub async fn reset(&self, store: Store) -> Result<()> {
        let (client, schema) = (self.admin(store)?, store.schema());
        let tables = if store == Store::Floor {
            "bench_floor.ready_entries_0".to_owned()
        } else {
            // Only the current slot's children: truncating all sixteen of each takes about a second.
            let sql = format!("SELECT current_slot::text FROM {schema}.queue_ring_state");
            let slot: String = client.query_one(&sql, &[]).await?.get(0);
            format!(
                "{schema}.ready_entries_{slot}, {schema}.ready_segments_{slot}, \
                 {schema}.deferred_jobs, {schema}.job_unique_claims"
            )
        };
        // Two statements in two transactions, so that the checkpoint also removes the old files.
        client.batch_execute(&format!("TRUNCATE {tables}")).await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok(())
    }

    /// Fails unless the store holds `jobs` ready jobs and, where `unique`, as many claims.
    pub async fn verify(&self, store: Store, jobs: usize, unique: bool) -> Result<()> {
        let (client, schema) = (self.admin(store)?, store.schema());
        let mut tables = vec!["ready_entries"];
        if unique && store != Store::Floor {
            tables.push("job_unique_claims");
        }
        for table in tables {
            let sql = format!("SELECT count(*) FROM {schema}.{table}");
            let found: i64 = client.query_one(&sql, &[]).await?.get(0);
            ensure!(found == jobs as i64, "{schema}.{table} has {found} rows after {jobs} jobs");
        }
        Ok(())
    }

    /// The connection for what happens outside the timing.
    pub fn admin(&self, store: Store) -> Result<&Client> {
        match store {
            Store::Awa | Store::Floor => Ok(&self.awa),
            Store::Attached => self.attached.as_ref().context("no attached database"),
            Store::Embedded => self.embedded.as_ref().context("no embedded storage"),
        }
    }
}

pub async fn connect(socket: &str, database: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::Config::new()
        .host_path(socket)
        .user("postgres")
        .dbname(database)
        .connect(NoTls)
        .await
        .with_context(|| format!("cannot connect to {database}"))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("connection lost: {error}");
        }
    });
    Ok(client)
}

pub async fn pool(socket: &str, database: &str) -> Result<PgPool> {
    let options =
        PgConnectOptions::new_without_pgpass().socket(socket).username("postgres").database(database).disable_statement_logging();
    // The pool's ping before each use is a round trip that is not awa's to pay.
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    Ok(pool.connect_with(options).await?)
}

pub async fn version_and_date(client: &Client) -> Result<(String, String)> {
    let sql = "SELECT current_setting('server_version'), current_date::text";
    let row = client.query_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

pub async fn create_database(socket: &str, database: &str) -> Result<Client> {
    connect(socket, "postgres").await?.batch_execute(&format!("CREATE DATABASE {database}")).await?;
    connect(socket, database).await
}

pub async fn database_with_awa(socket: &str, database: &str) -> Result<Client> {
    let client = create_database(socket, database).await?;
    migrate(&pool(socket, database).await?, &client).await?;
    Ok(client)
}

pub async fn create_extension(client: &Client) -> Result<()> {
    client.batch_execute("CREATE EXTENSION awa_ingest").await.context("cannot create the extension")
}

/// Creates awa's schema and makes its queue storage the active engine, as a fresh installation does.
async fn migrate(pool: &PgPool, awa: &Client) -> Result<()> {
    awa_model::migrations::run(pool).await?;
    awa.execute("SELECT awa.storage_auto_finalize_if_fresh('awa')", &[]).await?;
    let row = awa.query_one("SELECT awa.active_queue_storage_schema()", &[]).await?;
    let schema: Option<String> = row.get(0);
    ensure!(schema.as_deref() == Some("awa"), "awa's queue storage is not active: {schema:?}");
    Ok(())
}

async fn has_extension(client: &Client) -> Result<bool> {
    let sql = "SELECT FROM pg_available_extensions WHERE name = 'awa_ingest'";
    Ok(client.query_opt(sql, &[]).await?.is_some())
}

async fn offer(client: &Client) -> Result<Offer> {
    let sql = "SELECT to_regprocedure('awa_ingest.attach()') IS NOT NULL, to_regclass('awa.ingest') IS NOT NULL";
    let row = client.query_one(sql, &[]).await?;
    Ok(match (row.get(0), row.get(1)) {
        (true, _) => Offer::Replacement,
        (false, true) => Offer::ForeignTables,
        (false, false) => Offer::Functions,
    })
}
