//! Asks the storage for the stripes and shards of a queue.

use crate::settings;
use crate::spi::{self, Argument, Rows, View, argument};
use crate::statements::Statement;
use crate::storage::{Engine, Storage};
use awa_ingest_core::error::Result;
use awa_ingest_core::route::{Catalog, StoredQueue, split_stripe};

/// The queues of a storage.
pub struct QueueCatalog<'s> {
    /// Where the queues are.
    pub storage: &'s Storage,
}

impl Catalog for QueueCatalog<'_> {
    fn stored_queues(&mut self, queue: &str) -> Result<Vec<StoredQueue>> {
        if self.storage.engine == Engine::Canonical {
            return Ok(vec![StoredQueue { name: queue.to_owned(), shards: 1 }]);
        }
        // A name that is a stripe already is kept.
        let setting = settings::queue_stripe_count().filter(|_| split_stripe(queue).is_none());
        setting.inspect(|count| self.warn_of_mismatch(queue, *count));
        if let Some(stripes) = setting.filter(|count| *count > 1) {
            return Ok(self.stripes(queue, Some(stripes)));
        }
        let (shards, known, striped) = self.ask(Statement::Queue, &[argument(queue)], |rows| {
            (rows.get(0, 0).unwrap_or(1), rows.get(0, 1) == Some(true), rows.get(0, 2) == Some(true))
        });
        let mut stored = Vec::new();
        if (striped || !known) && setting.is_none() && split_stripe(queue).is_none() {
            stored = self.stripes(queue, None);
        }
        if stored.is_empty() {
            stored.push(StoredQueue { name: queue.to_owned(), shards });
        }
        Ok(stored)
    }
}

impl QueueCatalog<'_> {
    fn ask<T>(&self, statement: Statement, arguments: &[Argument], read: impl FnOnce(&Rows) -> T) -> T {
        spi::connect(|session| session.query(statement, &self.storage.target, arguments, View::Caller, read))
    }

    fn stripes(&self, queue: &str, count: Option<i32>) -> Vec<StoredQueue> {
        let arguments = [argument(queue), count.and_then(argument)];
        self.ask(Statement::Stripes, &arguments, |rows| {
            rows.map(|row| StoredQueue { name: rows.get(row, 0).unwrap_or_default(), shards: rows.get(row, 1).unwrap_or(1) })
                .collect()
        })
    }

    /// Workers look either at a queue's own lanes or at its stripes: jobs on the other side would never be claimed.
    fn warn_of_mismatch(&self, queue: &str, stripes: i32) {
        let (plain, striped) = self.ask(Statement::StripeMismatch, &[argument(queue)], |rows| {
            (rows.get(0, 0) == Some(true), rows.get(0, 1) == Some(true))
        });
        let mismatch = match stripes {
            1 if striped && !plain => "has striped lanes only",
            2.. if plain && !striped => "has lanes without stripes only",
            _ => return,
        };
        pgrx::warning!(
            "queue \"{queue}\" {mismatch}, and awa_ingest.queue_stripe_count is {stripes}: workers may never claim these jobs"
        );
    }
}
