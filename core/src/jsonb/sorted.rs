//! The fields of an object in the order of their keys' bytes, without a list of them.
//!
//! Stored order is by length first. Keys of one length are in order already, so that the runs of each length only have to be merged: there
//! are as many as lengths, which is little beside the keys' own bytes.

use super::{Children, Container, Corrupt, Result, Value, text};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The fields that are left, in order.
pub(super) struct Sorted<'a> {
    runs: BinaryHeap<Run<'a>>,
}

/// Keys of one length that are left, the first of them read.
struct Run<'a> {
    key: &'a str,
    keys: Children<'a>,
    values: Children<'a>,
    end: usize,
}

impl<'a> Sorted<'a> {
    pub(super) fn new(object: Container<'a>) -> Result<Self> {
        let count = object.len();
        let total = count.checked_mul(2).ok_or(Corrupt::Format)?;
        let mut keys = object.children(total)?;
        let mut values = keys.clone();
        values.skip_entries(count)?;
        let mut starts: Vec<(Children<'a>, Children<'a>)> = Vec::new();
        let mut longest = None;
        while keys.index < count {
            let here = (keys.clone(), values.clone());
            let (_, start, end) = keys.step()?;
            values.step()?;
            match longest.cmp(&Some(end - start)) {
                Ordering::Less => starts.push(here),
                Ordering::Equal => {}
                Ordering::Greater => return Err(Corrupt::Format),
            }
            longest = Some(end - start);
        }
        let ends: Vec<usize> = starts.iter().skip(1).map(|(keys, _)| keys.index).chain([count]).collect();
        let runs = starts.into_iter().zip(ends).map(|((keys, values), end)| Run { key: "", keys, values, end }.next());
        Ok(Self { runs: runs.filter_map(Result::transpose).collect::<Result<_>>()? })
    }

    /// The next field.
    pub(super) fn next(&mut self) -> Result<Option<(&'a str, Value<'a>)>> {
        let Some(mut run) = self.runs.pop() else { return Ok(None) };
        let field = (run.key, run.values.child()?);
        self.runs.extend(run.next()?);
        Ok(Some(field))
    }
}

impl Run<'_> {
    /// Reads the next key; `None` behind the last.
    fn next(mut self) -> Result<Option<Self>> {
        if self.keys.index >= self.end {
            return Ok(None);
        }
        let (kind, start, end) = self.keys.step()?;
        if kind != super::STRING {
            return Err(Corrupt::Format);
        }
        self.key = text(self.keys.slice(start, end)?)?;
        Ok(Some(self))
    }
}

/// The heap gives the greatest first: that is the one with the smallest key.
impl Ord for Run<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(self.key)
    }
}

impl PartialOrd for Run<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Run<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Run<'_> {}
