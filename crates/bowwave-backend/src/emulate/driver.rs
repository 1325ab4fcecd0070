//! Drives a model of `bowwave-device`: splits requests, queues them and reports their bytes. It has no clock.
//!
//! ```text
//!   arrive ──► I/O requests of the model's size ──► [FIFO beyond the depth] ──► model ──► Release
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bowwave_core::{Instant, Urgency};
use bowwave_device::{Device, Direction, Done, Request, RequestId};

use super::Release;
use super::station::Kind;

/// A device model and its queue.
#[derive(Debug)]
pub(super) struct Driver {
    device: Box<dyn Device>,
    waiting: VecDeque<Request>,
    at_device: usize,
    /// I/O requests so far: the next one's id.
    requests: u64,
    /// Transfer and offset of each I/O request.
    sources: BTreeMap<RequestId, (u64, u64)>,
    transfers: BTreeMap<u64, Progress>,
    /// Ends of flushes, with their transfers.
    flushes: BTreeSet<(u64, u64)>,
    releases: Vec<Release>,
    ended: Vec<Done>,
    #[cfg(test)]
    pub(super) log: Log,
}

/// A transfer that has not ended.
#[derive(Debug)]
struct Progress {
    bytes: u64,
    /// Offsets of its I/O requests that have not ended.
    open: BTreeSet<u64>,
}

/// Everything that the driver was sent, and when the model served it.
#[cfg(test)]
#[derive(Debug, Default, Clone)]
pub(super) struct Log {
    /// Time, direction, address and bytes of each transfer.
    pub(super) arrivals: Vec<(u64, Direction, u64, u64)>,
    pub(super) served: Vec<Done>,
}

impl Driver {
    pub(super) fn new(device: Box<dyn Device>) -> Self {
        Self {
            device,
            waiting: VecDeque::new(),
            at_device: 0,
            requests: 0,
            sources: BTreeMap::new(),
            transfers: BTreeMap::new(),
            flushes: BTreeSet::new(),
            releases: Vec::new(),
            ended: Vec::new(),
            #[cfg(test)]
            log: Log::default(),
        }
    }

    /// Accepts a transfer of `len > 0` bytes at byte `address`, or a flush; `false` if too many wait.
    pub(super) fn arrive(&mut self, now: u64, id: u64, kind: Kind, address: u64, len: u64) -> bool {
        if self.transfers.len() + self.flushes.len() >= TRANSFERS_MAX {
            return false;
        }
        // The model must be at `now` before it accepts anything.
        self.run(now);
        let direction = match kind {
            Kind::Read => Direction::Read,
            Kind::Write => Direction::Write,
            Kind::Flush => {
                self.flushes.insert((self.device.flush_end(Instant(now)).0, id));
                return true;
            }
        };
        #[cfg(test)]
        self.log.arrivals.push((now, direction, address, len));
        let mut open = BTreeSet::new();
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
            self.sources.insert(request.id, (id, offset));
            open.insert(offset);
            self.waiting.push_back(request);
            offset += request.bytes;
        }
        self.transfers.insert(id, Progress { bytes: len, open });
        self.submit(Instant(now));
        true
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<u64> {
        if !self.releases.is_empty() {
            return Some(0);
        }
        let flush = self.flushes.first().map(|(end, _)| *end);
        self.device.next_event().map(|next| next.0).into_iter().chain(flush).min()
    }

    /// Lets everything happen that is due by `now`, each at its own time.
    pub(super) fn advance(&mut self, now: u64, out: &mut Vec<Release>) {
        self.run(now);
        out.append(&mut self.releases);
    }

    fn run(&mut self, now: u64) {
        while let Some(next) = self.device.next_event().filter(|next| next.0 <= now) {
            let mut ended = std::mem::take(&mut self.ended);
            self.device.advance(next, &mut ended);
            for done in ended.drain(..) {
                self.end(&done);
            }
            self.ended = ended;
            self.submit(next);
        }
        while let Some(&(_, id)) = self.flushes.first().filter(|(end, _)| *end <= now) {
            self.flushes.pop_first();
            self.releases.push(Release { id, bytes: 0, over: true });
        }
    }

    /// Fills the device up to its depth.
    fn submit(&mut self, now: Instant) {
        while self.at_device < self.device.depth()
            && let Some(request) = self.waiting.pop_front()
        {
            self.at_device += 1;
            self.device.submit(now, &request);
        }
    }

    fn end(&mut self, done: &Done) {
        #[cfg(test)]
        self.log.served.push(*done);
        self.at_device -= 1;
        let Some((id, offset)) = self.sources.remove(&done.id) else { return };
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let was_first = transfer.open.first() == Some(&offset);
        transfer.open.remove(&offset);
        let over = transfer.open.is_empty();
        if was_first {
            let bytes = transfer.open.first().map_or(transfer.bytes, |first| *first);
            self.releases.push(Release { id, bytes, over });
        }
        if over {
            self.transfers.remove(&id);
        }
    }
}

/// Most transfers at once; only a caller that ignores the profile reaches it.
const TRANSFERS_MAX: usize = 4096;
