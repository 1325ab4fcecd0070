//! The queue in front of a device: merging, order, congestion.
//!
//! ```text
//! submit ──► [waits for a place] ──► queued, merged, sorted ──► device (up to its depth) ──► Completed
//!                  promote, cancel ────────┘
//! ```
//!
//! The caller must pass times in order and call [`Queue::advance`] for every [`Queue::next_event`]
//! before a later submission. Submissions at one time come before the `advance` of that time, so
//! that adjacent ones merge although the device is idle (a plug, in Linux's terms).

mod order;
mod pending;
mod scheduled;
mod stats;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use bowwave_core::schedule::SchedulerStats;
use bowwave_core::slab::NONE;
use bowwave_core::{ConfigError, Instant, Urgency};

pub use crate::device::queue::{Elevator, QueueConfig};
use crate::device::{Device, Direction, Done, Request, RequestId};
use order::Order;
use pending::{Part, Pending, Rest};
use scheduled::Scheduled;
pub use stats::{ClassDepth, QueueStats};

/// A device and its waiting requests. See the [module](self) for how to drive it.
#[derive(Debug)]
pub struct Queue {
    device: Box<dyn Device>,
    config: QueueConfig,
    pending: Pending,
    order: Order,
    /// The core's scheduler, if the elevator is one of its algorithms; `pending` is then empty.
    scheduled: Option<Scheduled>,
    /// Submitted requests that have not completed.
    tracked: HashMap<u64, Tracked, BuildHasherDefault<Mix>>,
    /// Parts that wait for a place in the queue, by direction.
    outside: [VecDeque<u32>; 2],
    /// Requests that hold a place, by direction, including those at the device.
    places: [usize; 2],
    congested: [bool; 2],
    at_device: usize,
    /// When a submission may be dispatched at once.
    dispatch_due: Option<Instant>,
    done: Vec<Done>,
    /// Reused: where the parts of a dispatched request end.
    ends: Vec<u64>,
    stats: QueueStats,
    counted_until: Instant,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Its identifier.
    pub id: RequestId,
    /// When it was submitted.
    pub queued: Instant,
    /// When the device started its first part.
    pub started: Instant,
    /// When the device completed its last part.
    pub ended: Instant,
    /// Its direction.
    pub direction: Direction,
    /// Whether it was demand in the end.
    pub urgency: Urgency,
    /// Whether a part was dispatched past its deadline.
    pub expired: bool,
}

/// A submitted request: one part, or several if it was too long for the device. Parts stay until
/// the last completes.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    queued: Instant,
    /// When the device started the first of the completed parts.
    started: Instant,
    first: u32,
    parts_left: u32,
    direction: Direction,
    urgency: Urgency,
    expired: bool,
}

impl Queue {
    /// Creates a queue in front of `device`.
    ///
    /// # Errors
    ///
    /// A setting that is out of bounds.
    pub fn new(device: Box<dyn Device>, config: QueueConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            order: Order::new(&config),
            scheduled: Scheduled::new(&config, &*device),
            device,
            config,
            pending: Pending::new(),
            tracked: HashMap::default(),
            outside: [VecDeque::new(), VecDeque::new()],
            places: [0; 2],
            congested: [false; 2],
            at_device: 0,
            dispatch_due: None,
            done: Vec::new(),
            ends: Vec::new(),
            stats: QueueStats::default(),
            counted_until: Instant(0),
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Submits a request. Nothing happens before the next [`advance`](Self::advance), not even on
    /// an idle device.
    ///
    /// # Panics
    ///
    /// If it has no bytes, reaches past 2^64, or its id is in use: bugs of the caller.
    pub fn submit(&mut self, now: Instant, request: Request) {
        assert!(
            request.bytes > 0 && request.start.checked_add(request.bytes).is_some(),
            "no such bytes: {request:?}"
        );
        self.account(now);
        self.order.submitted(now, &request);
        let bytes_max = self.device.request_bytes_max();
        let mut first = NONE;
        let mut parts_left = 0;
        let mut end = request.end();
        // From the end, so that the list of parts is in order.
        while end > request.start {
            let start = request.start + (end - 1 - request.start) / bytes_max * bytes_max;
            let piece = Request { start, bytes: end - start, ..request };
            let (item, next) = (NONE, NONE);
            first = self.pending.parts.insert(Part {
                id: request.id,
                request: piece,
                item,
                next,
                sibling: first,
                scheduled: None,
            });
            parts_left += 1;
            end = start;
        }
        let Request { direction, urgency, .. } = request;
        let (queued, started, expired) = (now, NOT_STARTED, false);
        let tracked = Tracked { queued, started, first, parts_left, direction, urgency, expired };
        self.stats.enter(direction, urgency);
        let before = self.tracked.insert(request.id.0, tracked);
        assert!(before.is_none(), "{:?} was submitted twice", request.id);
        let mut part = first;
        while part != NONE {
            self.enter(now, part);
            part = self.pending.parts[part].sibling;
        }
        if self.at_device < self.device.depth() {
            self.dispatch_due = Some(now);
        }
    }

    /// When [`advance`](Self::advance) must be called next, without further submissions.
    pub fn next_event(&self) -> Option<Instant> {
        let idle = if self.pending.waiting > 0 { self.order.idle_until() } else { None };
        [self.device.next_event(), self.dispatch_due, idle].into_iter().flatten().min()
    }

    /// Processes events up to `now` and adds the completed requests, in order of completion.
    pub fn advance(&mut self, now: Instant, completed: &mut Vec<Completed>) {
        while let Some(at) = self.next_event()
            && at <= now
        {
            self.account(at);
            self.dispatch_due = None;
            let mut done = std::mem::take(&mut self.done);
            self.device.advance(at, &mut done);
            for done in done.drain(..) {
                self.complete(done, completed);
            }
            self.done = done;
            self.dispatch(at);
        }
        self.account(now);
    }

    /// Marks a request as demand.
    pub fn promote(&mut self, id: RequestId) {
        let now = self.counted_until;
        let Some(tracked) = self.tracked.get_mut(&id.0) else { return };
        let mut part = tracked.first;
        if tracked.urgency == Urgency::Readahead {
            tracked.urgency = Urgency::Demand;
            self.stats.leave(tracked.direction, Urgency::Readahead);
            self.stats.enter(tracked.direction, Urgency::Demand);
            self.stats.promoted += 1;
        }
        while part != NONE {
            let Part { item, sibling, .. } = self.pending.parts[part];
            self.pending.parts[part].request.urgency = Urgency::Demand;
            if item != NONE {
                self.pending.items[item].urgency = Urgency::Demand;
            }
            if let Some(scheduled) = &mut self.scheduled {
                // A merged request may now be two; the limit holds again a moment later.
                let more = scheduled.promote(now, &mut self.pending, part);
                let places = &mut self.places[self.pending.parts[part].request.direction as usize];
                *places = places.saturating_add_signed(more);
            }
            part = sibling;
        }
    }

    /// Cancels a request that has no part at the device: it will not complete. Returns `false`,
    /// without effect, if it is too late or the request is unknown.
    pub fn cancel(&mut self, now: Instant, id: RequestId) -> bool {
        let Some(&Tracked { first, started, .. }) = self.tracked.get(&id.0) else { return false };
        if started != NOT_STARTED {
            return false;
        }
        let mut part = first;
        while part != NONE {
            let Part { item, sibling, .. } = self.pending.parts[part];
            if item != NONE && !self.pending.items[item].waits {
                return false;
            }
            part = sibling;
        }
        self.account(now);
        let mut part = first;
        while part != NONE {
            let sibling = self.pending.parts[part].sibling;
            self.drop_part(part);
            part = sibling;
        }
        if let Some(Tracked { direction, urgency, .. }) = self.tracked.remove(&id.0) {
            self.stats.leave(direction, urgency);
        }
        self.stats.cancelled += 1;
        self.admit(now);
        true
    }

    /// Whether readahead in this direction should be deferred: the queue is congested.
    pub fn is_congested(&self, direction: Direction) -> bool {
        self.congested[direction as usize]
    }

    /// Requests of both directions that wait, in the queue or outside, or are at the device, after
    /// merging.
    pub fn len(&self) -> usize {
        self.places.iter().sum::<usize>() + self.outside.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Whether nothing waits and nothing is at the device.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Statistics so far.
    pub fn stats(&self) -> &QueueStats {
        &self.stats
    }

    /// Statistics of the core's scheduler, if it is used.
    pub fn scheduler_stats(&self) -> Option<&SchedulerStats> {
        self.scheduled.as_ref().map(|scheduled| scheduled.dispatcher.stats())
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Places a part: merged, in a place of its own, or outside.
    fn enter(&mut self, now: Instant, part: u32) {
        let direction = self.pending.parts[part].request.direction as usize;
        if !self.outside[direction].is_empty() || !self.place(now, part) {
            self.outside[direction].push_back(part);
            self.stats.blocked += 1;
        }
        self.stats.depth_max = self.stats.depth_max.max(self.len());
    }

    fn place(&mut self, now: Instant, part: u32) -> bool {
        let direction = self.pending.parts[part].request.direction as usize;
        if let Some(closed) = self.merge(part) {
            self.stats.merged += 1 + closed as u64;
            self.places[direction] -= closed;
        } else if self.places[direction] < self.config.requests_max {
            match &mut self.scheduled {
                Some(scheduled) => scheduled.add(now, &mut self.pending, part),
                None => _ = self.pending.add(part),
            }
            self.places[direction] += 1;
        } else {
            return false;
        }
        self.weigh(direction);
        true
    }

    /// Merges a part into a waiting one, if possible; returns how many others became one thereby.
    fn merge(&mut self, part: u32) -> Option<usize> {
        if let Some(scheduled) = &mut self.scheduled {
            return scheduled.merge(&mut self.pending, part);
        }
        let mut closed = 0;
        let bytes_max = self.device.request_bytes_max();
        (self.config.merge && self.pending.merge(part, bytes_max, &mut closed)).then_some(closed)
    }

    /// Admits waiting parts while there are places.
    fn admit(&mut self, now: Instant) {
        for direction in 0..2 {
            while let Some(&part) = self.outside[direction].front()
                && self.place(now, part)
            {
                self.outside[direction].pop_front();
            }
            self.weigh(direction);
        }
    }

    fn weigh(&mut self, direction: usize) {
        if self.places[direction] >= self.config.congested_on {
            self.congested[direction] = true;
        } else if self.places[direction] < self.config.congested_off {
            self.congested[direction] = false;
        }
    }

    fn dispatch(&mut self, now: Instant) {
        while self.at_device < self.device.depth()
            && let Some(index) = self.next(now)
        {
            let item = &self.pending.items[index];
            let request = Request {
                id: RequestId(index.into()),
                direction: item.direction,
                start: item.start,
                bytes: item.end - item.start,
                urgency: item.urgency,
                owner: item.owner,
                object: item.object,
            };
            let mut part = item.first;
            self.ends.clear();
            while part != NONE {
                let Part { request, next, .. } = &self.pending.parts[part];
                self.ends.push(request.end() - item.start);
                part = *next;
            }
            self.order.dispatched(&request);
            self.stats.requests[request.direction as usize] += 1;
            self.stats.bytes[request.direction as usize] += request.bytes;
            self.at_device += 1;
            self.stats.expired += u64::from(item.expired);
            self.device.submit_parts(now, &request, &self.ends);
        }
    }

    /// Removes the next request to dispatch.
    fn next(&mut self, now: Instant) -> Option<u32> {
        if let Some(scheduled) = &mut self.scheduled {
            let (index, is_part) = scheduled.dispatch(now, &mut self.pending)?;
            // The remainder of a split request holds a place, too.
            self.places[self.pending.items[index].direction as usize] += usize::from(is_part);
            return Some(index);
        }
        let index = self.order.next(now, &self.pending, self.at_device == 0)?;
        self.pending.take(index);
        Some(index)
    }

    fn complete(&mut self, done: Done, completed: &mut Vec<Completed>) {
        let index = done.id.0 as u32;
        let item = self.pending.items[index];
        let came = item.end - done.left;
        let mut part = item.first;
        while part != NONE && self.pending.parts[part].request.end() <= came {
            let Part { id, next, .. } = self.pending.parts[part];
            self.pending.parts[part].item = NONE;
            part = next;
            let tracked = self.tracked.get_mut(&id.0).expect("a part of a request that has not ended");
            tracked.parts_left -= 1;
            tracked.expired |= item.expired;
            tracked.started = tracked.started.min(done.started);
            if tracked.parts_left == 0 {
                let Tracked { queued, started, mut first, direction, urgency, expired, .. } = *tracked;
                self.stats.leave(direction, urgency);
                self.tracked.remove(&id.0);
                while first != NONE {
                    self.pending.parts.release(first);
                    first = self.pending.parts[first].sibling;
                }
                let ended = done.ended;
                completed.push(Completed { id, queued, started, ended, direction, urgency, expired });
            }
        }
        if done.left > 0 {
            self.pending.items[index].first = part;
            return;
        }
        self.order.ended(done.ended, &item);
        self.pending.items.release(index);
        self.at_device -= 1;
        self.places[item.direction as usize] -= 1;
        if let (Some(scheduled), Some(id)) = (&mut self.scheduled, item.dispatch) {
            scheduled.complete(done.ended, id);
        }
        self.admit(done.ended);
    }

    fn drop_part(&mut self, part: u32) {
        let Part { item, request, scheduled: id, .. } = self.pending.parts[part];
        let direction = request.direction as usize;
        if item == NONE && id.is_none() {
            self.outside[direction].retain(|&other| other != part);
            self.pending.parts.release(part);
            return;
        }
        let rest = match &mut self.scheduled {
            Some(scheduled) => scheduled.drop_part(&mut self.pending, part),
            None => self.pending.remove(part),
        };
        match rest {
            Rest::Nothing => self.places[direction] -= 1,
            Rest::One => {}
            // This may exceed the limit by one; nothing is admitted until it no longer does.
            Rest::Two => self.places[direction] += 1,
        }
        self.weigh(direction);
    }

    /// Nanoseconds up to `now` that the device was busy. The [statistics](Self::stats) end with the
    /// last event.
    pub fn busy_ns(&self, now: Instant) -> u64 {
        let since = now.0.saturating_sub(self.counted_until.0);
        self.stats.busy_ns + if self.at_device > 0 { since } else { 0 }
    }

    /// Accounts the time up to `now` with the current state.
    fn account(&mut self, now: Instant) {
        let passed = now.0.saturating_sub(self.counted_until.0);
        if passed > 0 {
            self.counted_until = now;
            self.stats.busy_ns += if self.at_device > 0 { passed } else { 0 };
            self.stats.depth_ns += u128::from(passed) * self.len() as u128;
            self.stats.pass(passed);
            self.stats.congested_ns += if self.congested[0] { passed } else { 0 };
        }
    }
}

/// Start of a request of which no part has completed.
const NOT_STARTED: Instant = Instant(u64::MAX);

/// Hashes request numbers, which are often sequential.
#[derive(Clone, Copy, Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests;
