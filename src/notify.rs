//! Wakes the workers: one notification for each queue that got ready rows, sent by the server when the transaction commits.
#![allow(unsafe_code)]

use crate::settings;
use awa_ingest_core::lanes::Lanes;
use awa_ingest_core::route::{Router, split_stripe};
use pgrx::pg_sys;
use std::collections::BTreeSet;
use std::ffi::CString;

/// Notifies the channels of all queues with jobs in `lanes`.
pub fn queues(router: &Router, lanes: &Lanes) {
    let ready: BTreeSet<usize> = lanes.in_order().into_iter().map(|lane| lanes.get(lane).stored).collect();
    let woken = router.queues().filter(|(_, stored)| stored.iter().any(|index| ready.contains(index)));
    let channels: BTreeSet<String> = woken.flat_map(|(queue, _)| listeners(queue)).collect();
    channels.iter().for_each(|channel| notify(channel));
}

/// Notifies the channels of one queue.
pub fn queue(queue: &str) {
    listeners(queue).for_each(|channel| notify(&channel));
}

/// Names under which workers listen for a queue. Whether a name like `q#3` is a stripe of `q` is known only to the workers'
/// configuration; unless the setting tells, both are woken.
fn listeners(queue: &str) -> impl Iterator<Item = String> {
    let logical = split_stripe(queue).map(|(logical, _)| logical);
    let (own, logical) = match (settings::queue_stripe_count(), logical) {
        (_, None) | (Some(1), _) => (Some(queue), None),
        (None, logical) => (Some(queue), logical),
        (Some(_), logical) => (None, logical),
    };
    own.into_iter().chain(logical).map(|name| format!("awa:{name}"))
}

/// LISTEN shortens a channel like any identifier, and so does this.
fn notify(channel: &str) {
    let limit = pg_sys::NAMEDATALEN as usize - 1;
    let end = (0..=limit.min(channel.len())).rev().find(|end| channel.is_char_boundary(*end)).unwrap_or(0);
    let channel = CString::new(&channel[..end]).unwrap_or_default();
    // SAFETY: two C strings, copied by the server.
    unsafe { pg_sys::Async_Notify(channel.as_ptr(), c"".as_ptr()) }
}
