//! The queue before a device: merging, order, congestion.
//!
//! ```text
//!   submit ──► [waits for a place] ──► queued, merged, sorted ──► device (up to its depth) ──► Completed
//!                    promote, cancel ────────┘
//! ```
//!
//! The caller's part: times never go back; every time that [`Queue::next_event`] names is visited by
//! [`Queue::advance`] before a later submission; several submissions at one time come before the `advance` of that time,
//! so that neighbours among them merge although the device is idle (a plug, as Linux calls it).

mod order;
mod pending;
mod scheduled;
mod stats;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use bowwave_core::schedule::SchedulerStats;
use bowwave_core::slab::NONE;
use bowwave_core::{Instant, Urgency};

pub use crate::device::queue::{Elevator, QueueConfig, QueueConfigError};
use crate::device::{Device, Direction, Done, Request, RequestId};
use order::Order;
use pending::{Part, Pending, Rest};
use scheduled::Scheduled;
pub use stats::{ClassDepth, QueueStats};

/// A device and the requests that wait for it. See the [module](self) for how to drive it.
#[derive(Debug)]
pub struct Queue {
    device: Box<dyn Device>,
    config: QueueConfig,
    pending: Pending,
    order: Order,
    /// The core's scheduler, if the elevator is one of its algorithms: then nothing waits in `pending`.
    scheduled: Option<Scheduled>,
    /// Submitted requests that have not ended.
    tracked: HashMap<u64, Tracked, BuildHasherDefault<Mix>>,
    /// Parts that wait for a place in the queue, by direction.
    outside: [VecDeque<u32>; 2],
    /// Requests that hold a place, by direction, those at the device included.
    places: [usize; 2],
    congested: [bool; 2],
    at_device: usize,
    /// When something was submitted that the device may take at once.
    dispatch_due: Option<Instant>,
    done: Vec<Done>,
    /// Of a request that goes to the device, where its parts end.
    ends: Vec<u64>,
    stats: QueueStats,
    counted_until: Instant,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Which.
    pub id: RequestId,
    /// When it was submitted.
    pub queued: Instant,
    /// When the device began to work on its first part.
    pub started: Instant,
    /// When the device was done with its last part.
    pub ended: Instant,
    /// Which way its bytes went.
    pub direction: Direction,
    /// Whether someone waited for it in the end.
    pub urgency: Urgency,
    /// Whether a part of it went to the device past its deadline.
    pub expired: bool,
}

/// A submitted request: one part, or several if it was too long for the device. Parts stay until the last has ended.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    queued: Instant,
    /// When the device began with the first part of those that have ended.
    started: Instant,
    first: u32,
    parts_left: u32,
    direction: Direction,
    urgency: Urgency,
    expired: bool,
}

impl Queue {
    /// A queue before `device`.
    ///
    /// # Errors
    /// A knob that is out of bounds.
    pub fn new(device: Box<dyn Device>, config: QueueConfig) -> Result<Self, QueueConfigError> {
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

    /// As it was made.
    #[must_use]
    pub fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Takes a request. Nothing happens before the next [`advance`](Self::advance), not even on an idle device.
    ///
    /// # Panics
    /// If it has no bytes, reaches past 2^64, or its id is that of a request that has not ended: bugs of the caller.
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
        // From the end, so that the list of pieces comes out in order.
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

    /// When [`advance`](Self::advance) must be called next, if nothing else is submitted before.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        let idle = if self.pending.waiting > 0 { self.order.idle_until() } else { None };
        [self.device.next_event(), self.dispatch_due, idle].into_iter().flatten().min()
    }

    /// Lets happen what is due by `now` and adds the requests that ended by then, in order of their ends.
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

    /// Someone now waits for this request.
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
                // What was merged may be two requests now, and stay within the limit a moment later.
                let more = scheduled.promote(now, &mut self.pending, part);
                let places = &mut self.places[self.pending.parts[part].request.direction as usize];
                *places = places.saturating_add_signed(more);
            }
            part = sibling;
        }
    }

    /// Drops a request of which nothing is at the device yet: it will not be completed. `false` if it is too late, or
    /// there is no such request; then nothing changes.
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

    /// Whether readahead in this direction should be left for later: the queue is fuller than its limit.
    #[must_use]
    pub fn is_congested(&self, direction: Direction) -> bool {
        self.congested[direction as usize]
    }

    /// Requests of both directions that wait or are at the device, after merging, with those that wait outside.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.iter().sum::<usize>() + self.outside.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Whether nothing waits and nothing is at the device.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> &QueueStats {
        &self.stats
    }

    /// What the core's scheduler has counted, if it is that which decides.
    #[must_use]
    pub fn scheduler_stats(&self) -> Option<&SchedulerStats> {
        self.scheduled.as_ref().map(|scheduled| scheduled.dispatcher.stats())
    }

    /// The device behind it.
    #[must_use]
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Gives a part a place: in a neighbour, in one of its own, or outside.
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

    /// Adds a part to one that waits, if it can be; how many others thereby became one.
    fn merge(&mut self, part: u32) -> Option<usize> {
        if let Some(scheduled) = &mut self.scheduled {
            return scheduled.merge(&mut self.pending, part);
        }
        let mut closed = 0;
        let bytes_max = self.device.request_bytes_max();
        (self.config.merge && self.pending.merge(part, bytes_max, &mut closed)).then_some(closed)
    }

    /// Lets in what waits outside, as far as there are places.
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

    /// Takes what goes to the device now out of what waits.
    fn next(&mut self, now: Instant) -> Option<u32> {
        if let Some(scheduled) = &mut self.scheduled {
            let (index, is_part) = scheduled.dispatch(now, &mut self.pending)?;
            // What stays in line has a place, too.
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
            // For a moment there may be one more than the limit; nothing enters until there no longer is.
            Rest::Two => self.places[direction] += 1,
        }
        self.weigh(direction);
    }

    /// Nanoseconds up to `now` that the device was busy. The [statistics](Self::stats) end with the last event.
    #[must_use]
    pub fn busy_ns(&self, now: Instant) -> u64 {
        let since = now.0.saturating_sub(self.counted_until.0);
        self.stats.busy_ns + if self.at_device > 0 { since } else { 0 }
    }

    /// Counts the time up to `now` with the state as it was.
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

/// Of a request of which the device has ended no part.
const NOT_STARTED: Instant = Instant(u64::MAX);

/// Spreads request numbers, which often count up.
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
