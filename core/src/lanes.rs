//! Tallies the lanes of a call: how many positions each needs, which position a job has behind the lane's start, and the runs of
//! equal `run_at` that become ready segments.

use std::collections::HashMap;

/// A lane that the call writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Index of the stored queue in the router.
    pub stored: usize,
    /// Stored queue name.
    pub queue: String,
    /// 1 to 4.
    pub priority: i16,
    /// 0 to 63.
    pub shard: i16,
    /// Positions taken so far.
    pub count: i64,
    run: Run,
}

impl Lane {
    /// The lane of a single job.
    pub fn of_one(queue: &str, priority: i16, shard: i16) -> Self {
        Self { stored: 0, queue: queue.to_owned(), priority, shard, count: 1, run: Run::default() }
    }

    /// The order in which every writer takes its lanes.
    pub fn order(&self) -> (&[u8], i16, i16) {
        (self.queue.as_bytes(), self.priority, self.shard)
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "(queue \"{}\", priority {}, shard {})", self.queue, self.priority, self.shard)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Run {
    first: i64,
    run_at: Option<i64>,
}

/// Consecutive positions of a lane with equal `run_at`, counted from the lane's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Index for [`Lanes::get`].
    pub lane: usize,
    /// First position.
    pub first: i64,
    /// Position behind the last.
    pub next: i64,
    /// `None` for the call's clock.
    pub run_at: Option<i64>,
}

/// The lanes of a call.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: Vec<Lane>,
    index: HashMap<(usize, i16, i16), usize>,
}

impl Lanes {
    /// The lane of a stored queue (by its index in the router), priority and shard. `name` is asked for when the lane is new.
    pub fn find<'n>(&mut self, stored: usize, priority: i16, shard: i16, name: impl FnOnce() -> &'n str) -> usize {
        let lanes = &mut self.lanes;
        *self.index.entry((stored, priority, shard)).or_insert_with(|| {
            lanes.push(Lane { stored, queue: name().to_owned(), priority, shard, count: 0, run: Run::default() });
            lanes.len() - 1
        })
    }

    /// Takes the lane's next position for a job that is due at `run_at`. Returns it with the segment that it ends, if any.
    pub fn place(&mut self, lane: usize, run_at: Option<i64>) -> (i64, Option<Segment>) {
        let this = &mut self.lanes[lane];
        let position = this.count;
        let segment = Segment { lane, first: this.run.first, next: position, run_at: this.run.run_at };
        let ended = (position > 0 && this.run.run_at != run_at).then_some(segment);
        if position == 0 || ended.is_some() {
            this.run = Run { first: position, run_at };
        }
        this.count += 1;
        (position, ended)
    }

    /// The segments that no later job has ended: one for every lane with jobs.
    pub fn open_segments(&self) -> impl Iterator<Item = Segment> {
        let lanes = self.lanes.iter().enumerate().filter(|(_, lane)| lane.count > 0);
        lanes.map(|(index, lane)| Segment { lane: index, first: lane.run.first, next: lane.count, run_at: lane.run.run_at })
    }

    /// Forgets all positions, and keeps the lanes and their numbers: for placing the same jobs again without some of them.
    pub fn restart(&mut self) {
        self.lanes.iter_mut().for_each(|lane| (lane.count, lane.run) = (0, Run::default()));
    }

    /// Jobs placed in all lanes.
    pub fn jobs(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.count as u64).sum()
    }

    /// Number of lanes, with jobs or without.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// True without any lane.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The lane with this index.
    pub fn get(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    /// Indexes of the lanes that have jobs, in the order in which every writer takes them.
    pub fn in_order(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.lanes.len()).filter(|lane| self.lanes[*lane].count > 0).collect();
        order.sort_unstable_by(|a, b| self.lanes[*a].order().cmp(&self.lanes[*b].order()));
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_segments() {
        let mut lanes = Lanes::default();
        let lane = lanes.find(0, 2, 0, || "q");
        let placed: Vec<_> = [None, None, Some(5), Some(5), None].map(|run_at| lanes.place(lane, run_at)).into();
        assert_eq!(placed.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let mut segments: Vec<_> = placed.into_iter().filter_map(|(_, segment)| segment).collect();
        segments.extend(lanes.open_segments());
        let bounds: Vec<_> = segments.iter().map(|segment| (segment.first, segment.next, segment.run_at)).collect();
        assert_eq!(bounds, [(0, 2, None), (2, 4, Some(5)), (4, 5, None)]);
    }

    #[test]
    fn lanes_are_taken_by_queue_priority_and_shard() {
        let mut lanes = Lanes::default();
        for (stored, queue, priority, shard) in [(0, "b", 1, 0), (1, "a", 2, 1), (1, "a", 2, 0), (1, "a", 1, 3), (2, "B", 1, 0)] {
            let lane = lanes.find(stored, priority, shard, || queue);
            lanes.place(lane, None);
        }
        let order: Vec<_> = lanes.in_order().into_iter().map(|lane| lanes.get(lane).to_string()).collect();
        assert_eq!(
            order,
            [
                "(queue \"B\", priority 1, shard 0)",
                "(queue \"a\", priority 1, shard 3)",
                "(queue \"a\", priority 2, shard 0)",
                "(queue \"a\", priority 2, shard 1)",
                "(queue \"b\", priority 1, shard 0)",
            ]
        );
    }

    #[test]
    fn a_restart_keeps_numbers_and_drops_positions() {
        let mut lanes = Lanes::default();
        let (first, second) = (lanes.find(0, 2, 0, || "a"), lanes.find(1, 2, 0, || "b"));
        lanes.place(first, None);
        lanes.place(second, Some(1));
        lanes.restart();
        assert_eq!(lanes.place(second, Some(2)), (0, None));
        assert_eq!(lanes.in_order(), [second]);
        assert_eq!(lanes.find(0, 2, 0, || unreachable!()), first);
    }
}
