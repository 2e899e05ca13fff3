//! What became of each job of a call, kept as runs: a million jobs with consecutive ids are one run, and so are a million jobs that
//! were skipped for the consecutive jobs of an earlier call.

/// Ids of consecutive jobs of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// Of the first job: its id, or that of the job that holds its key; `None` if that is unknown.
    first: Option<i64>,
    count: i64,
    skipped: bool,
}

impl Run {
    /// Whether a job behind the last one continues the run.
    fn takes(&self, id: Option<i64>, skipped: bool) -> bool {
        self.skipped == skipped && self.first.and_then(|first| first.checked_add(self.count)) == id && id.is_some()
            || self.skipped && skipped && self.first.is_none() && id.is_none()
    }
}

/// What became of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// Its place in the request, from 1.
    pub ord: i64,
    /// Its id; `None` if it was skipped.
    pub job_id: Option<i64>,
    /// The job that holds its key, if it was skipped and the holder is known.
    pub conflicts_with: Option<i64>,
}

/// The fates of a call's jobs, in input order, in bounded memory.
#[derive(Debug, Clone)]
pub struct Outcome {
    runs: Vec<Run>,
    limit: usize,
    enqueued: i64,
    skipped: i64,
}

impl Outcome {
    /// An empty outcome that may take `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { runs: Vec::new(), limit: bytes / size_of::<Run>(), enqueued: 0, skipped: 0 }
    }

    /// The next job has this id.
    pub fn enqueued(&mut self, job_id: i64) {
        self.enqueued += 1;
        self.push(Some(job_id), false);
    }

    /// The next job was left out because `holder` has its key.
    pub fn skipped(&mut self, holder: Option<i64>) {
        self.skipped += 1;
        self.push(holder, true);
    }

    /// Forgets all jobs.
    pub fn clear(&mut self) {
        *self = Self { runs: Vec::new(), enqueued: 0, skipped: 0, ..*self };
    }

    /// How many jobs were enqueued and how many skipped.
    pub fn counts(&self) -> (i64, i64) {
        (self.enqueued, self.skipped)
    }

    /// Every job's fate, in input order; `None` if the runs outgrew the memory.
    pub fn fates(&self) -> Option<impl Iterator<Item = Fate>> {
        let mut ord = 0;
        let each = self.runs.iter().flat_map(|run| (0..run.count).map(|at| (run.skipped, run.first.map(|first| first + at))));
        let fates = each.map(move |(skipped, id)| {
            ord += 1;
            let (job_id, conflicts_with) = if skipped { (None, id) } else { (id, None) };
            Fate { ord, job_id, conflicts_with }
        });
        self.is_complete().then_some(fates)
    }

    /// The ids of the enqueued jobs as ranges with both ends, in ascending order; `None` if the runs outgrew the memory.
    pub fn ranges(&self) -> Option<Vec<(i64, i64)>> {
        if !self.is_complete() {
            return None;
        }
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for run in self.runs.iter().filter(|run| !run.skipped) {
            let Some(first) = run.first else { continue };
            let last = first + run.count - 1;
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == first => *end = last,
                _ => ranges.push((first, last)),
            }
        }
        Some(ranges)
    }

    fn is_complete(&self) -> bool {
        self.runs.iter().map(|run| run.count).sum::<i64>() == self.enqueued + self.skipped
    }

    /// Once there is no room for a run, none are kept: half an answer would pass for a whole one.
    fn push(&mut self, id: Option<i64>, skipped: bool) {
        let dropped = self.runs.is_empty() && self.enqueued + self.skipped > 1;
        let full = self.runs.len() >= self.limit;
        match self.runs.last_mut() {
            _ if dropped => {}
            Some(last) if last.takes(id, skipped) => last.count += 1,
            _ if full => self.runs = Vec::new(),
            _ => self.runs.push(Run { first: id, count: 1, skipped }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(outcome: &Outcome) -> Vec<(i64, Option<i64>, Option<i64>)> {
        outcome.fates().unwrap().map(|fate| (fate.ord, fate.job_id, fate.conflicts_with)).collect()
    }

    #[test]
    fn consecutive_ids_are_one_run() {
        let mut outcome = Outcome::new(1 << 20);
        [5, 6, 7, 10].into_iter().for_each(|id| outcome.enqueued(id));
        [Some(1), Some(2), None, None].into_iter().for_each(|holder| outcome.skipped(holder));
        outcome.enqueued(11);
        assert_eq!(outcome.runs.len(), 5);
        assert_eq!(
            fates(&outcome),
            [
                (1, Some(5), None),
                (2, Some(6), None),
                (3, Some(7), None),
                (4, Some(10), None),
                (5, None, Some(1)),
                (6, None, Some(2)),
                (7, None, None),
                (8, None, None),
                (9, Some(11), None),
            ]
        );
        assert_eq!(outcome.ranges(), Some(vec![(5, 7), (10, 11)]));
        assert_eq!(outcome.counts(), (5, 4));
    }

    #[test]
    fn a_skipped_job_does_not_continue_enqueued_ones() {
        let mut outcome = Outcome::new(1 << 20);
        outcome.enqueued(1);
        outcome.skipped(Some(2));
        outcome.enqueued(3);
        assert_eq!(fates(&outcome), [(1, Some(1), None), (2, None, Some(2)), (3, Some(3), None)]);
        assert_eq!(outcome.ranges(), Some(vec![(1, 1), (3, 3)]));
    }

    #[test]
    fn what_does_not_fit_is_dropped_whole_and_counted() {
        let mut outcome = Outcome::new(3 * size_of::<Run>());
        [1, 3, 5].into_iter().for_each(|id| outcome.enqueued(id));
        assert!(outcome.fates().is_some());
        [7, 8, 9].into_iter().for_each(|id| outcome.enqueued(id));
        outcome.skipped(None);
        assert!(outcome.fates().is_none() && outcome.ranges().is_none());
        assert_eq!(outcome.counts(), (6, 1));
        outcome.clear();
        outcome.enqueued(1);
        assert_eq!(fates(&outcome), [(1, Some(1), None)]);
    }

    #[test]
    fn nothing_is_an_empty_outcome() {
        assert_eq!(fates(&Outcome::new(0)), []);
        assert_eq!(Outcome::new(0).ranges(), Some(vec![]));
    }
}
