//! A batch of a candidate that sends the jobs' bytes as they are.

use std::mem;

use bytes::Bytes;

use crate::jobs::Job;

/// Jobs, or what is sent for them where the case has that made before the timing.
pub enum Batch {
    Jobs(Vec<Job>),
    Ready(Bytes),
}

impl Batch {
    pub fn of(batches: Vec<Vec<Job>>) -> Vec<Self> {
        batches.into_iter().map(Self::Jobs).collect()
    }

    /// Replaces jobs by their bytes, batch by batch: those of a million jobs take a gigabyte.
    pub fn render(batches: &mut [Self], bytes_of: impl Fn(&[Job]) -> Bytes) {
        for batch in batches {
            *batch = match mem::replace(batch, Self::Jobs(Vec::new())) {
                Self::Jobs(jobs) => Self::Ready(bytes_of(&jobs)),
                ready @ Self::Ready(_) => ready,
            };
        }
    }
}
