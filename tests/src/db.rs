//! A fresh database per test, and ways to connect to it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls, Notification};

use crate::Cluster;

/// What a fresh database holds. Each is made once for a cluster and then copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// Nothing.
    Bare,
    /// The extension alone, with its embedded storage.
    Embedded,
    /// awa, migrated but still on its canonical engine, without the extension.
    AwaCanonical,
    /// awa with queue storage active, without the extension.
    AwaOnly,
    /// awa with queue storage active, and the extension attached to it.
    Awa,
}

impl Template {
    pub(crate) const COUNT: usize = 5;

    fn name(self) -> &'static str {
        match self {
            Self::Bare => "template_bare",
            Self::Embedded => "template_embedded",
            Self::AwaCanonical => "template_awa_canonical",
            Self::AwaOnly => "template_awa_only",
            Self::Awa => "template_awa",
        }
    }

    fn base(self) -> Option<Self> {
        match self {
            Self::Bare => None,
            Self::Embedded | Self::AwaCanonical => Some(Self::Bare),
            Self::AwaOnly => Some(Self::AwaCanonical),
            Self::Awa => Some(Self::AwaOnly),
        }
    }

    /// What this template has beyond its base.
    async fn fill(self, url: &str) {
        match self {
            Self::Bare => {}
            Self::Embedded | Self::Awa => run(url, "CREATE EXTENSION awa_ingest").await,
            Self::AwaCanonical => migrate_awa(url).await,
            Self::AwaOnly => run(url, "SELECT awa.storage_auto_finalize_if_fresh('awa')").await,
        }
    }
}

/// A database of its own for one test.
pub struct Db {
    cluster: Arc<Cluster>,
    name: String,
}

impl Db {
    /// An empty database on the shared server.
    pub async fn bare() -> Self {
        Self::of(Template::Bare).await
    }

    /// A database with the extension and its embedded storage.
    pub async fn embedded() -> Self {
        Self::of(Template::Embedded).await
    }

    /// A database that awa itself migrated and finalised, with the extension attached.
    pub async fn awa() -> Self {
        Self::of(Template::Awa).await
    }

    /// An awa database whose owner is an ordinary role, as most are, with the extension beside it; and that role's name.
    pub async fn awa_of_a_role() -> (Self, String) {
        let db = Self::of(Template::Bare).await;
        let owner = db.role("owner").await;
        run(&db.url(), &format!("GRANT CREATE ON DATABASE {} TO {owner}", db.name())).await;
        migrate_awa(&db.url_of(&owner)).await;
        run(&db.url_of(&owner), "SELECT awa.storage_auto_finalize_if_fresh('awa')").await;
        run(&db.url(), "CREATE EXTENSION awa_ingest").await;
        (db, owner)
    }

    /// A copy of `template` on the shared server.
    pub async fn of(template: Template) -> Self {
        Self::on(Cluster::shared(), template).await
    }

    /// A copy of `template` on a server of the test's own.
    pub async fn on(cluster: Arc<Cluster>, template: Template) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        ensure_template(&cluster, template).await;
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        create_database(&cluster, &name, Some(template)).await;
        Self { cluster, name }
    }

    /// The server this database is on.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection string for the superuser.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// A connection string for `role`.
    pub fn url_of(&self, role: &str) -> String {
        self.cluster.url(role, &self.name)
    }

    /// A new connection of the superuser.
    pub async fn connect(&self) -> Client {
        connect(&self.url()).await
    }

    /// A new connection of `role`.
    pub async fn connect_as(&self, role: &str) -> Client {
        connect(&self.url_of(role)).await
    }

    /// A new connection that listens on `channel`, and what arrives on it.
    pub async fn listen(&self, channel: &str) -> (Client, Notifications) {
        let (client, notifications) = connect_listening(&self.url()).await;
        client.batch_execute(&format!("LISTEN \"{}\"", channel.replace('"', "\"\""))).await.expect("LISTEN");
        (client, notifications)
    }

    /// A sqlx pool of the superuser, as awa's own client and worker want it.
    pub async fn pool(&self) -> PgPool {
        pool(&self.url(), 20).await
    }

    /// Runs awa's migrations, as `awa migrate` does.
    pub async fn migrate_awa(&self) {
        migrate_awa(&self.url()).await;
    }

    /// Creates a login role that no other test knows and returns its name. It can do what PUBLIC can.
    pub async fn role(&self, purpose: &str) -> String {
        let role = format!("{}_{purpose}", self.name);
        run(&self.url(), &format!("CREATE ROLE {role} LOGIN")).await;
        role
    }
}

/// The notifications a connection received, in order.
pub struct Notifications(UnboundedReceiver<Notification>);

impl Notifications {
    /// The next notification.
    ///
    /// # Panics
    /// When none comes within [`crate::DEADLINE`].
    pub async fn next(&mut self) -> Notification {
        crate::within("a notification", self.0.recv()).await.expect("the listening connection is open")
    }

    /// What has arrived so far and was not taken yet. PostgreSQL delivers notifications before the result of the
    /// listener's next statement, so run one on the listening connection first.
    pub fn arrived(&mut self) -> Vec<Notification> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

async fn ensure_template(cluster: &Cluster, template: Template) {
    let made = cluster.templates[template as usize].get_or_init(|| async {
        if let Some(base) = template.base() {
            Box::pin(ensure_template(cluster, base)).await;
        }
        // A test that failed in here left a half-made template: let the next one fail for the same reason, not for that.
        run(&cluster.url("postgres", "postgres"), &format!("DROP DATABASE IF EXISTS {}", template.name())).await;
        create_database(cluster, template.name(), template.base()).await;
        template.fill(&cluster.url("postgres", template.name())).await;
    });
    made.await;
}

async fn create_database(cluster: &Cluster, name: &str, template: Option<Template>) {
    let template = template.map_or("template0", Template::name);
    run(&cluster.url("postgres", "postgres"), &format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")).await;
}

async fn migrate_awa(url: &str) {
    let pool = pool(url, 2).await;
    awa_model::migrations::run(&pool).await.expect("awa migrate");
    pool.close().await;
}

/// One statement on a connection of its own, which is gone from the database when this returns.
async fn run(url: &str, statement: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect(url);
    let connection = tokio::spawn(connection);
    client.batch_execute(statement).await.expect(statement);
    drop(client);
    connection.await.expect("the connection task").expect("the connection");
}

async fn pool(url: &str, max_connections: u32) -> PgPool {
    PgPoolOptions::new().max_connections(max_connections).connect(url).await.expect(url)
}

async fn connect(url: &str) -> Client {
    connect_listening(url).await.0
}

async fn connect_listening(url: &str) -> (Client, Notifications) {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.expect(url);
    let (send, receive) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notification(notification)) => drop(send.send(notification)),
                Ok(_) => {}
                // The statement that was running reports it too.
                Err(_) => return,
            }
        }
    });
    (client, Notifications(receive))
}
