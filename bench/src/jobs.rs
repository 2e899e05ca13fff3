//! The jobs that are enqueued: shop events with about 130 bytes of arguments, the same for every candidate.

use awa_model::unique::compute_unique_key;
use awa_model::{InsertOpts, InsertParams, UniqueOpts};
use serde::Serialize;
use serde_json::{Value, json};

/// scheduled, available, running, completed and retryable: the states in which a unique job of awa's clients holds its key by default.
pub const UNIQUE_STATES: &str = "11111000";

/// What an application holds before it enqueues. It serialises to a job object of `awa.enqueue_batch`.
#[derive(Clone, Serialize)]
pub struct Job {
    pub kind: &'static str,
    pub queue: String,
    pub args: Value,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unique: bool,
}

impl Job {
    /// The same job as awa's clients take it.
    pub fn to_params(&self) -> InsertParams {
        InsertParams {
            kind: self.kind.to_owned(),
            args: self.args.clone(),
            opts: InsertOpts { queue: self.queue.clone(), unique: self.unique.then(UniqueOpts::default), ..InsertOpts::default() },
        }
    }

    /// The key that awa's clients compute by default.
    pub fn unique_key(&self) -> Vec<u8> {
        compute_unique_key(self.kind, None, Some(&self.args), None)
    }
}

/// Makes jobs whose arguments, and so unique keys, never repeat within a run.
pub struct Generator {
    next: u64,
    queues: u64,
}

impl Generator {
    pub fn new(queues: u64) -> Self {
        Self { next: 0, queues }
    }

    /// `count` batches of `size` jobs each.
    pub fn batches(&mut self, count: usize, size: usize, unique: bool) -> Vec<Vec<Job>> {
        let mut batch = || (0..size).map(|_| self.job(unique)).collect();
        (0..count).map(|_| batch()).collect()
    }

    fn job(&mut self, unique: bool) -> Job {
        const KINDS: [&str; 4] = ["send_email", "charge_card", "reindex_product", "resize_image"];
        const TEMPLATES: [&str; 3] = ["order_shipped", "order_confirmed", "review_request"];
        const LOCALES: [&str; 4] = ["en-GB", "de-AT", "pt-BR", "fi-FI"];

        self.next += 1;
        let n = self.next;
        // A fixed multiplier spreads the values without a random number generator, so that runs are alike.
        let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        Job {
            kind: KINDS[n as usize % KINDS.len()],
            queue: format!("shop{}", n % self.queues),
            args: json!({
                "order_id": 10_000_000 + n,
                "customer": format!("customer-{mixed:010}@example.com"),
                "template": TEMPLATES[mixed as usize % TEMPLATES.len()],
                "locale": LOCALES[mixed as usize % LOCALES.len()],
                "total_cents": mixed % 100_000,
            }),
            unique,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_about_130_bytes() {
        let jobs = Generator::new(1).batches(1, 1_000, false).remove(0);
        let bytes: usize = jobs.iter().map(|job| job.args.to_string().len()).sum();
        assert!((125..=135).contains(&(bytes / jobs.len())), "{} bytes", bytes / jobs.len());
    }

    #[test]
    fn a_job_without_uniqueness_names_only_what_it_sets() {
        let job = Generator::new(1).batches(1, 1, false).remove(0).remove(0);
        let value = serde_json::to_value(job).expect("a job serialises");
        let keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["args", "kind", "queue"]);
    }
}
