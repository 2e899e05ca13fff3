//! Where a job goes: which stripe of its queue, and which shard of the stripe.

use crate::error::Result;
use crate::job::Job;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// A stored queue name, and how many shards its lanes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredQueue {
    /// The name in the storage: the queue's own, or that of a stripe.
    pub name: String,
    /// `enqueue_shards` of the queue, 1 to 64.
    pub shards: i16,
}

/// What the storage says about one queue name: its stripes, or just itself.
pub trait Catalog {
    /// The stored queues behind `queue`, at least one, in stripe order.
    fn stored_queues(&mut self, queue: &str) -> Result<Vec<StoredQueue>>;
}

/// A stripe's queue name taken apart: the queue, and the stripe's number.
pub fn split_stripe(name: &str) -> Option<(&str, usize)> {
    let (queue, number) = name.rsplit_once('#')?;
    number.parse().ok().map(|number| (queue, number))
}

/// Most stripes a queue can have.
pub const STRIPE_LIMIT: usize = 64;

/// The queue that a stored queue belongs to: what a stripe is a stripe of, or itself. `stripes` is how many every queue has, or `None` if
/// that is not known, and then whatever is named like a stripe is taken for one.
pub fn logical_queue(stored: &str, stripes: Option<usize>) -> &str {
    let stripes = stripes.map_or(STRIPE_LIMIT, |stripes| if stripes == 1 { 0 } else { stripes });
    split_stripe(stored).filter(|(_, number)| *number < stripes).map_or(stored, |(queue, _)| queue)
}

/// Routes the jobs of one call.
#[derive(Debug)]
pub struct Router {
    /// Queues asked for, with the indexes of the stored queues behind them.
    queues: HashMap<String, Rc<[usize]>>,
    stored: Vec<StoredQueue>,
    /// Index of a stored queue, by its name.
    names: HashMap<String, usize>,
    /// Shard that jobs without ordering key take, by stored queue and priority.
    picks: HashMap<(usize, i16), i16>,
    rotor: u32,
}

/// A job's stored queue (an index into the router) and shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    /// Index for [`Router::stored`].
    pub stored: usize,
    /// 0 to 63.
    pub shard: i16,
}

impl Router {
    /// `rotor` is where the shards of jobs without ordering key start; the next call should start at [`Router::rotor`].
    pub fn new(rotor: u32) -> Self {
        Self { queues: HashMap::new(), stored: Vec::new(), names: HashMap::new(), picks: HashMap::new(), rotor }
    }

    /// Where the rotor stands.
    pub fn rotor(&self) -> u32 {
        self.rotor
    }

    /// The stored queue behind a [`Route`].
    pub fn stored(&self, index: usize) -> &StoredQueue {
        &self.stored[index]
    }

    /// The index of a stored queue that was routed to.
    pub fn find(&self, stored: &str) -> Option<usize> {
        self.names.get(stored).copied()
    }

    /// The queues that jobs named, each with the stored queues behind it.
    pub fn queues(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.queues.iter().map(|(queue, stored)| (queue.as_str(), &**stored))
    }

    /// Routes the job at `ordinal` (from 1). Asks the catalog once for each queue.
    pub fn route(&mut self, job: &Job<'_>, ordinal: u64, catalog: &mut impl Catalog) -> Result<Route> {
        let stripes = match self.queues.get(job.queue) {
            Some(stripes) => Rc::clone(stripes),
            None => self.learn(job.queue, catalog)?,
        };
        let stored = stripes[stripe(job, stripes.len(), ordinal - 1)];
        let shard = shard(job, self.stored[stored].shards, |shards| self.pick(stored, job.priority, shards));
        Ok(Route { stored, shard })
    }

    /// A stripe that is also asked for by its own name is one stored queue: its lanes keep the input's order.
    fn learn(&mut self, queue: &str, catalog: &mut impl Catalog) -> Result<Rc<[usize]>> {
        let mut stripes = Vec::new();
        for stored in catalog.stored_queues(queue)? {
            let next = self.stored.len();
            let index = *self.names.entry(stored.name.clone()).or_insert(next);
            if index == next {
                self.stored.push(stored);
            }
            stripes.push(index);
        }
        let stripes: Rc<[usize]> = stripes.into();
        self.queues.insert(queue.to_owned(), Rc::clone(&stripes));
        Ok(stripes)
    }

    /// One shard a queue, priority and call: a call's jobs stay together, calls spread.
    fn pick(&mut self, stored: usize, priority: i16, shards: i16) -> i16 {
        let rotor = &mut self.rotor;
        *self.picks.entry((stored, priority)).or_insert_with(|| {
            let shard = *rotor % shards as u32;
            *rotor = rotor.wrapping_add(1);
            shard as i16
        })
    }
}

/// The stripe of a job, out of `stripes` of its queue. Jobs that are not unique take turns.
pub fn stripe(job: &Job<'_>, stripes: usize, turn: u64) -> usize {
    match &job.unique {
        _ if stripes == 1 => 0,
        Some(unique) => stripe_of_key(&unique.key, stripes),
        None => (turn % stripes as u64) as usize,
    }
}

/// The shard of a job, out of `shards` of its stored queue; `pick` chooses for jobs without ordering key.
pub fn shard(job: &Job<'_>, shards: i16, pick: impl FnOnce(i16) -> i16) -> i16 {
    match &job.ordering_key {
        _ if shards <= 1 => 0,
        Some(key) => shard_of_key(key, shards),
        None => pick(shards),
    }
}

/// The shard of an ordering key: the storage protocol's 64-bit multiply-and-add hash.
pub fn shard_of_key(key: &[u8], shards: i16) -> i16 {
    let hash = key
        .iter()
        .fold(14_695_981_039_346_656_037u64, |hash, byte| hash.wrapping_mul(1_099_511_628_211).wrapping_add(u64::from(*byte)));
    (hash % shards as u64) as i16
}

/// The stripe of a unique key: awa hashes the key's `Vec<u8>` with the standard library's hasher, length first.
fn stripe_of_key(key: &[u8], stripes: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish() as usize % stripes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Draft;
    use crate::unique::Uniqueness;
    use std::borrow::Cow;

    struct Fixed(usize, i16);

    impl Catalog for Fixed {
        fn stored_queues(&mut self, queue: &str) -> Result<Vec<StoredQueue>> {
            let name = |n: usize| if self.0 == 1 { queue.to_owned() } else { format!("{queue}#{n}") };
            Ok((0..self.0).map(|n| StoredQueue { name: name(n), shards: self.1 }).collect())
        }
    }

    fn job<'a>(key: Option<&'a [u8]>) -> Job<'a> {
        Draft { kind: Some("k"), ordering_key: key.map(Cow::Borrowed), ..Draft::default() }.validate().unwrap()
    }

    #[test]
    fn stripes_belong_to_their_queue() {
        for (stored, stripes, queue) in [
            ("q", None, "q"),
            ("q#0", None, "q"),
            ("q#63", None, "q"),
            ("q#64", None, "q#64"),
            ("a#b#3", Some(4), "a#b"),
            ("q#4", Some(4), "q#4"),
            ("q#0", Some(1), "q#0"),
            ("q#x", None, "q#x"),
        ] {
            assert_eq!(logical_queue(stored, stripes), queue, "{stored} of {stripes:?}");
        }
    }

    #[test]
    fn ordering_keys_hash_as_awas() {
        // Computed with awa_model 0.6.9's shard_for_ordering_key.
        assert_eq!(shard_of_key(b"", 64), 37);
        assert_eq!(shard_of_key(b"customer-1", 4), 3);
    }

    #[test]
    fn jobs_without_key_share_one_pick_that_rotates_between_calls() {
        let mut first = Router::new(7);
        let routes: Vec<_> = (1..=5).map(|n| first.route(&job(None), n, &mut Fixed(1, 4)).unwrap().shard).collect();
        assert_eq!(routes, vec![3; 5]);
        let mut second = Router::new(first.rotor());
        assert_eq!(second.route(&job(None), 1, &mut Fixed(1, 4)).unwrap().shard, 0);
    }

    #[test]
    fn stripes_take_turns_by_ordinal() {
        let mut router = Router::new(0);
        let names: Vec<_> = (1..=5)
            .map(|n| {
                let route = router.route(&job(None), n, &mut Fixed(3, 1)).unwrap();
                router.stored(route.stored).name.clone()
            })
            .collect();
        assert_eq!(names, ["default#0", "default#1", "default#2", "default#0", "default#1"]);
    }

    #[test]
    fn a_unique_job_keeps_its_stripe() {
        let unique = Uniqueness::given(Some("00112233"), Some("01000000")).unwrap();
        let job = Draft { kind: Some("k"), unique, ..Draft::default() }.validate().unwrap();
        let mut router = Router::new(0);
        let routes: Vec<_> = (1..=9).map(|n| router.route(&job, n, &mut Fixed(8, 1)).unwrap()).collect();
        assert!(routes.iter().all(|route| *route == routes[0]));
    }

    #[test]
    fn unique_keys_hash_as_awas() {
        // Computed as awa_model 0.6.9 does.
        assert_eq!(stripe_of_key(&[0, 1, 2, 3], 8), 6);
    }

    #[test]
    fn a_stripe_asked_for_by_name_is_the_same_stored_queue() {
        let mut router = Router::new(0);
        let striped = router.route(&job(None), 1, &mut Fixed(2, 1)).unwrap();
        let named = Draft { kind: Some("k"), queue: Some("default#0"), ..Draft::default() }.validate().unwrap();
        assert_eq!(router.route(&named, 2, &mut Fixed(1, 1)).unwrap(), striped);
    }

    #[test]
    fn stripe_names() {
        assert_eq!(split_stripe("mail#12"), Some(("mail", 12)));
        assert_eq!(split_stripe("a#b#3"), Some(("a#b", 3)));
        assert_eq!(split_stripe("mail"), None);
        assert_eq!(split_stripe("mail#x"), None);
    }
}
