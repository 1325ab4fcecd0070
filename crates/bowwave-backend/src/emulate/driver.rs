//! Drives a model of `bowwave-device`: splits transfers into requests, queues those beyond the
//! model's depth, and reports bytes. It has no clock.
//!
//! ```text
//!   arrive ──► requests of the model's size ──► [queue beyond the depth] ──► model ──► Release
//! ```
//!
//! The model orders the requests that it holds. The queue alternates between first requests of
//! transfers and further requests of long ones, each in order of arrival: a short transfer does not
//! wait until long ones end, and long ones stay sequential.

use std::collections::{BTreeMap, VecDeque};

use bowwave_core::{Instant, Urgency};
use bowwave_device::{Device, Direction, Done, Request, RequestId};

/// The first `bytes` bytes of transfer `id` are through; all of them if it has `ended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) id: u64,
    pub(super) bytes: u64,
    pub(super) ended: bool,
}

/// A device model and its queue.
#[derive(Debug)]
pub(super) struct Driver {
    device: Box<dyn Device>,
    /// Progress of a request is reported in steps of this size, if the device streams.
    step_bytes: u64,
    queue: Queue,
    at_device: usize,
    /// Requests so far: the next one's id.
    requests: u64,
    /// Transfer, offset in it, and bytes of each request.
    sources: BTreeMap<RequestId, (u64, u64, u64)>,
    transfers: BTreeMap<u64, Progress>,
    releases: Vec<Release>,
    #[cfg(test)]
    pub(super) log: Log,
}

/// Requests that wait for the device.
#[derive(Debug, Default)]
struct Queue {
    first: VecDeque<Request>,
    further: VecDeque<Request>,
    /// The last one was a first one.
    was_first: bool,
}

impl Queue {
    fn pop(&mut self) -> Option<Request> {
        let first = self.further.is_empty() || !self.was_first && !self.first.is_empty();
        let request = if first { self.first.pop_front() } else { self.further.pop_front() }?;
        self.was_first = first;
        Some(request)
    }
}

/// A transfer that has not ended.
#[derive(Debug)]
struct Progress {
    bytes: u64,
    released: u64,
    /// Received bytes of each unfinished request, by its offset.
    open: BTreeMap<u64, u64>,
}

/// Everything that the driver was sent, and when the model served it.
#[cfg(test)]
#[derive(Debug, Default, Clone)]
pub(super) struct Log {
    /// Time, direction, address and bytes of each transfer.
    pub(super) arrivals: Vec<(u64, Direction, u64, u64)>,
    pub(super) served: Vec<Done>,
    pub(super) step_bytes: u64,
}

impl Driver {
    pub(super) fn new(device: Box<dyn Device>, step_bytes: u64) -> Self {
        Self {
            device,
            step_bytes,
            queue: Queue::default(),
            at_device: 0,
            requests: 0,
            sources: BTreeMap::new(),
            transfers: BTreeMap::new(),
            releases: Vec::new(),
            #[cfg(test)]
            log: Log { step_bytes, ..Log::default() },
        }
    }

    /// Accepts a transfer of `len > 0` bytes at byte `address`; `false` if too many wait.
    pub(super) fn arrive(&mut self, now: u64, id: u64, direction: Direction, address: u64, len: u64) -> bool {
        if self.queue.first.len() >= WAITING_MAX {
            return false;
        }
        // The model must be at `now` before it accepts anything.
        self.run(now);
        #[cfg(test)]
        self.log.arrivals.push((now, direction, address, len));
        let mut open = BTreeMap::new();
        let size = self.device.request_bytes_max();
        let mut offset = 0;
        while offset < len {
            let request = Request {
                id: RequestId(self.requests),
                direction,
                start: address.wrapping_add(offset),
                bytes: size.min(len - offset),
                urgency: Urgency::Demand,
                owner: 0,
                object: 0,
            };
            self.requests += 1;
            self.sources.insert(request.id, (id, offset, request.bytes));
            open.insert(offset, 0);
            let queue = if offset == 0 { &mut self.queue.first } else { &mut self.queue.further };
            queue.push_back(request);
            offset += request.bytes;
        }
        self.transfers.insert(id, Progress { bytes: len, released: 0, open });
        self.submit(Instant(now));
        true
    }

    /// When a flush sent at `now` ends.
    pub(super) fn flush_end(&mut self, now: u64) -> u64 {
        self.run(now);
        self.device.flush_end(Instant(now)).0
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<u64> {
        if !self.releases.is_empty() {
            return Some(0);
        }
        self.device.next_event().map(|next| next.0)
    }

    /// Lets everything happen that is due by `now`, each at its own time.
    pub(super) fn advance(&mut self, now: u64, out: &mut Vec<Release>) {
        self.run(now);
        out.append(&mut self.releases);
    }

    fn run(&mut self, now: u64) {
        let mut ended = Vec::new();
        while let Some(next) = self.device.next_event().filter(|next| next.0 <= now) {
            self.device.advance(next, &mut ended);
            for done in ended.drain(..) {
                self.end(&done);
            }
            self.submit(next);
        }
    }

    /// Fills the device up to its depth.
    fn submit(&mut self, now: Instant) {
        let mut ends = Vec::new();
        while self.at_device < self.device.depth()
            && let Some(request) = self.queue.pop()
        {
            self.at_device += 1;
            ends.clear();
            ends.extend((1..request.bytes.div_ceil(self.step_bytes)).map(|step| step * self.step_bytes));
            ends.push(request.bytes);
            self.device.submit_parts(now, &request, &ends);
        }
    }

    fn end(&mut self, done: &Done) {
        #[cfg(test)]
        self.log.served.push(*done);
        let Some(&(id, offset, bytes)) = self.sources.get(&done.id) else { return };
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if done.left > 0 {
            transfer.open.insert(offset, bytes - done.left);
        } else {
            self.at_device -= 1;
            self.sources.remove(&done.id);
            transfer.open.remove(&offset);
        }
        let ended = transfer.open.is_empty();
        let released = transfer.open.first_key_value().map_or(transfer.bytes, |(offset, came)| offset + came);
        if released > transfer.released {
            transfer.released = released;
            self.releases.push(Release { id, bytes: released, ended });
        }
        if ended {
            self.transfers.remove(&id);
        }
    }
}

/// Most transfers that wait for the device; only a caller that ignores the profile reaches it.
const WAITING_MAX: usize = 4096;
