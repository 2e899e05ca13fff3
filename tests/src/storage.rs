//! The two storages, as tests address them.

use tokio_postgres::Client;

use crate::{Db, Template};

/// Where jobs go: tests of rules that hold on both storages run once for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// The extension's own tables.
    Embedded,
    /// awa's tables in its default schema.
    Attached,
}

impl Storage {
    /// Both, for tests that loop.
    pub const BOTH: [Self; 2] = [Self::Embedded, Self::Attached];

    /// A fresh database with this storage.
    pub async fn db(self) -> Db {
        match self {
            Self::Embedded => Db::of(Template::Embedded).await,
            Self::Attached => Db::of(Template::Awa).await,
        }
    }

    /// The schema the tables are in.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Embedded => "awa_ingest",
            Self::Attached => "awa",
        }
    }

    /// `schema.table`.
    pub fn table(self, table: &str) -> String {
        format!("{}.{table}", self.schema())
    }

    /// Splits `queue` into `shards` lanes per priority.
    pub async fn shard(self, client: &Client, queue: &str, shards: i16) {
        let sql = format!(
            "INSERT INTO {} (queue, enqueue_shards) VALUES ($1, $2) \
             ON CONFLICT (queue) DO UPDATE SET enqueue_shards = EXCLUDED.enqueue_shards",
            self.table("queue_meta")
        );
        client.execute(&sql, &[&queue, &shards]).await.expect(&sql);
    }
}
