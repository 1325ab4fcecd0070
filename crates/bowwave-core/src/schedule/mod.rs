//! The order of requests to a device: sync requests precede async ones, and neither starves.
//!
//! ```text
//!   add ──► merged, sorted by address and by deadline ──► dispatch ──► device ──► complete
//!              promote, cancel ────────┘       └─ with its reason
//! ```
//!
//! A [`Scheduler`] is a pure state machine without a clock, as the cache is. Its driver adds
//! requests, takes as many dispatches as the device accepts, and completes each of them once. Times
//! must not go back. A [`Dispatcher`] adds what drivers share: the depth, payloads, retries and
//! hedged reads.
//!
//! | algorithm | what it follows |
//! |---|---|
//! | `noop` | order of arrival |
//! | `deadline` | the text of the patch "Reduce latencies for synchronous writes" (linux-kernel, 2009) |
//!
//! `deadline` serves batches of up to 16 requests in disk order, sync or async. Sync batches go
//! first, but after two of them a waiting async request begins a batch. A batch begins where the
//! last one ended, if the next request there has its class and no deadline of the class has passed.
//! Otherwise it begins with the earliest deadline (0.5 s for sync, 5 s for async). A sync batch
//! continues with the next sync request within 16 requests. If there is none, it becomes async. An
//! async batch continues with the next request of any class.
//!
//! Another crate adds an algorithm with [`AlgorithmKind`]. `bowwave-baselines` has Linux 2.6.29's,
//! and the patch's code.
//!
//! `deadline` alone goes beyond the patch:
//!
//! - Readahead is async and only demand is sync. Linux took every read as sync.
//! - Requests of different classes do not merge: an async tail must not make a demand read longer.
//! - Priorities and aging are those of Linux's mq-deadline.
//! - Async requests at the device are limited by the service times of sync ones, and by free slots.
//!
//! With any algorithm, a waiting request can be [promoted](Scheduler::promote).
//!
//! Adding a request may allocate, and so may splitting one (`dispatch_up_to`, `promote_alone`,
//! `cancel`).

mod choose;
mod config;
mod depth;
mod dispatcher;
mod gain;
mod items;
mod knobs;
mod level;
mod race;
mod request;
mod stats;

pub use config::{Algorithm, AlgorithmKind, Group, SchedulerConfig};
pub use dispatcher::{CONGESTED_REQUESTS, Dispatcher, Expired, QUEUE_REQUESTS};
pub use knobs::{KNOBS, Knob, KnobError, SchedulerTuning};
pub use request::{Class, Direction, Dispatch, DispatchId, Priority, Reason, Request, RequestId};
pub use stats::SchedulerStats;

use crate::config::ConfigError;
use crate::event::Urgency;
use crate::time::Instant;
use depth::AsyncDepth;
use items::{AtDevice, Item, NONE, Part, Slab, State};
use level::{Level, Touching};

/// The requests for one device. See the [module](self).
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    items: Slab<Item>,
    parts: Slab<Part>,
    /// By priority. Algorithms without priorities use one.
    levels: [Level; Priority::ALL.len()],
    /// Waiting items.
    waiting: usize,
    /// Items at the device, by priority.
    at_device: [usize; Priority::ALL.len()],
    async_at_device: u32,
    /// Sync requests dispatched since the last write-back.
    sync_in_a_row: u32,
    depth: AsyncDepth,
    stats: SchedulerStats,
    /// The configuration at creation; [`tune`](Self::tune) starts from it.
    set_up: SchedulerConfig,
}

/// The result of adding a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its identifier.
    pub id: RequestId,
    /// Whether it merged with a waiting request.
    pub merged: bool,
    /// Whether it closed the gap between two waiting requests, which are now one.
    pub closed: bool,
}

/// What is left of a waiting request after one of its parts was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Nothing: it had one part.
    Nothing,
    /// One request.
    One,
    /// Two requests that are not adjacent.
    Two,
}

impl Scheduler {
    /// A scheduler without requests.
    ///
    /// # Errors
    /// A knob that is out of bounds.
    pub fn new(config: SchedulerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let limited = config.algorithm.is_deadline();
        let (fast_ns, start) = (config.sync_fast_ns, config.async_depth_start);
        let bytes_min = config.async_bytes_min;
        let bytes_max = if limited && bytes_min < u64::MAX { config.request_bytes_max } else { u64::MAX };
        let (max, slowdown) =
            if limited { (config.async_depth_max, config.sync_slowdown_max) } else { (u32::MAX, u32::MAX) };
        Ok(Self {
            set_up: config.clone(),
            config,
            items: Slab::default(),
            parts: Slab::default(),
            levels: [const { Level::new() }; Priority::ALL.len()],
            waiting: 0,
            at_device: [0; Priority::ALL.len()],
            async_at_device: 0,
            sync_in_a_row: 0,
            depth: AsyncDepth::new(max, slowdown, fast_ns)
                .by_gain(start)
                .shortening(bytes_min.min(bytes_max), bytes_max),
            stats: SchedulerStats::default(),
        })
    }

    /// Changes knobs at run time. Waiting requests keep their deadlines.
    pub fn tune(&mut self, tuning: SchedulerTuning) {
        self.config = tuning.apply(self.set_up.clone());
    }

    /// Takes a request, merged with a waiting one if possible.
    ///
    /// # Panics
    /// If the request has no bytes: a bug of the driver.
    pub fn add(&mut self, now: Instant, request: Request) -> Added {
        if let Some(added) = self.merge(&request) {
            return added;
        }
        assert!(request.start < request.end, "a request without bytes");
        let group = self.group(&request);
        let after = match self.config.algorithm {
            Algorithm::Noop => 0,
            _ if group == Group::Favoured => self.config.favoured_expire_ns,
            _ => self.config.other_expire_ns,
        };
        let deadline = Instant(now.0.saturating_add(after));
        let Request { start, end, .. } = request;
        let part = self.parts.insert(Part { start, end, item: NONE, next: NONE });
        let (older, newer, state) = (NONE, NONE, State::Waits);
        let item = Item { request, added: now, deadline, first: part, last: part, older, newer, state };
        let item = self.items.insert(item);
        self.parts[part].item = item;
        let level = self.level(&request);
        self.levels[level].insert(&mut self.items, item, group, self.config.seeks);
        self.waiting += 1;
        self.stats.added += 1;
        Added { id: self.parts.id(part), merged: false, closed: false }
    }

    /// Takes a request only if it merges with a waiting one, whose deadline it then shares.
    pub fn merge(&mut self, request: &Request) -> Option<Added> {
        let level = self.level(request);
        let space = if self.config.seeks { 0 } else { request.object };
        let bytes = (space, request.start, request.end);
        let touching = self.levels[level].touching(&self.items, request.direction as usize, bytes);
        let Touching { below, above } = touching;
        let below = below.filter(|&item| self.config.merge_back && self.fits(item, request));
        let above = above.filter(|&item| self.config.merge_front && self.fits(item, request));
        let item = below.or(above)?;
        let Request { start, end, .. } = *request;
        let part = self.parts.insert(Part { start, end, item, next: NONE });
        let Request { start: item_start, end: item_end, .. } = self.items[item].request;
        if below.is_some() {
            let last = self.items[item].last;
            self.parts[last].next = part;
            self.items[item].last = part;
        } else {
            self.parts[part].next = self.items[item].first;
            self.items[item].first = part;
        }
        let (start, end) = (start.min(item_start), end.max(item_end));
        self.levels[level].resize(&mut self.items, item, start, end, self.config.seeks);
        let merges_to_sync = match self.config.algorithm {
            Algorithm::Noop | Algorithm::Deadline => true,
            Algorithm::Other(kind) => kind.merges_to_sync(),
        };
        if merges_to_sync && request.urgency == Urgency::Demand {
            self.items[item].request.urgency = Urgency::Demand;
        }
        let closed = below.is_some() && above.is_some_and(|above| self.merge_adjacent(level, item, above));
        self.stats.added += 1;
        self.stats.merged += 1;
        Some(Added { id: self.parts.id(part), merged: true, closed })
    }

    /// The next request for the device. None if no request waits, or if the device must first
    /// complete another.
    pub fn dispatch(&mut self, now: Instant) -> Option<Dispatch> {
        self.dispatch_up_to(now, |_| u64::MAX)
    }

    /// Like [`dispatch`](Self::dispatch), but may split a merged request. Its first parts are
    /// dispatched: at least one, and as many as reach the bytes that `bytes_for` returns. The rest
    /// keeps its place. For devices that serve several requests at once: a long request would leave
    /// slots idle.
    pub fn dispatch_up_to(
        &mut self,
        now: Instant,
        bytes_for: impl FnOnce(&Request) -> u64,
    ) -> Option<Dispatch> {
        let choice = self.choose(now)?;
        let request = &self.items[choice.item].request;
        let most = if request.class() == Class::Async { self.depth.bytes() } else { u64::MAX };
        let bytes = bytes_for(request).min(most);
        Some(self.take(now, &choice, bytes))
    }

    /// Makes a waiting request sync, with all requests merged with it. It keeps its place in disk
    /// order. Its deadline becomes that of a sync request added now, unless its own is earlier.
    /// Returns false, and changes nothing, if it does not wait or without
    /// [`promotion`](SchedulerConfig::promotion).
    pub fn promote(&mut self, now: Instant, id: RequestId) -> bool {
        if !self.config.promotion || !self.parts.is_current(id.index, id.generation) {
            return false;
        }
        let item = self.parts[id.index].item;
        if self.items[item].state != State::Waits {
            return false;
        }
        let before = self.group(&self.items[item].request);
        self.stats.promoted += u64::from(self.items[item].request.urgency == Urgency::Readahead);
        self.items[item].request.urgency = Urgency::Demand;
        let after = self.group(&self.items[item].request);
        if before != after {
            let level = self.level(&self.items[item].request);
            self.levels[level].step_out(&mut self.items, item, before);
            let deadline = Instant(now.0.saturating_add(self.config.favoured_expire_ns));
            self.items[item].deadline = self.items[item].deadline.min(deadline);
            self.levels[level].line_up(&mut self.items, item, after);
        }
        true
    }

    /// Like [`promote`](Self::promote), but this request leaves the merged one, so that it need not
    /// wait for the rest of a long one. Returns its new identifier. None if it does not wait, or
    /// without [`promotion`](SchedulerConfig::promotion).
    pub fn promote_alone(&mut self, now: Instant, id: RequestId) -> Option<RequestId> {
        if !self.config.promotion || !self.parts.is_current(id.index, id.generation) {
            return None;
        }
        let part = self.parts[id.index];
        let Item { request, state, deadline, .. } = self.items[part.item];
        if state != State::Waits {
            return None;
        }
        let promoted = Request { start: part.start, end: part.end, urgency: Urgency::Demand, ..request };
        if self.group(&promoted) == self.group(&request) {
            return self.promote(now, id).then_some(id);
        }
        self.remove_part(id.index, part);
        let id = self.add(now, promoted).id;
        self.stats.added -= 1;
        self.stats.promoted += 1;
        self.hasten(self.parts[id.index].item, deadline);
        Some(id)
    }

    /// Raises the priority of a waiting request, which leaves a merged one. Returns its new
    /// identifier. None if it does not wait, or has this priority or a higher one.
    pub fn raise(&mut self, now: Instant, id: RequestId, priority: Priority) -> Option<RequestId> {
        if !self.parts.is_current(id.index, id.generation) {
            return None;
        }
        let part = self.parts[id.index];
        let Item { request, state, deadline, .. } = self.items[part.item];
        let raised = Request { start: part.start, end: part.end, priority, ..request };
        if state != State::Waits || self.level(&raised) >= self.level(&request) {
            return None;
        }
        self.remove_part(id.index, part);
        let id = self.add(now, raised).id;
        self.stats.added -= 1;
        self.hasten(self.parts[id.index].item, deadline);
        Some(id)
    }

    /// Makes a waiting item's deadline earlier; a later `deadline` changes nothing.
    fn hasten(&mut self, item: u32, deadline: Instant) {
        let group = self.group(&self.items[item].request);
        let level = self.level(&self.items[item].request);
        if deadline < self.items[item].deadline {
            self.levels[level].step_out(&mut self.items, item, group);
            self.items[item].deadline = deadline;
            self.levels[level].line_up(&mut self.items, item, group);
        }
    }

    /// Drops a waiting request. None if it does not wait: it will be completed.
    pub fn cancel(&mut self, id: RequestId) -> Option<Remains> {
        if !self.parts.is_current(id.index, id.generation) {
            return None;
        }
        let part = self.parts[id.index];
        if self.items[part.item].state != State::Waits {
            return None;
        }
        self.stats.cancelled += 1;
        Some(self.remove_part(id.index, part))
    }

    /// The device has ended a dispatch; the identifiers of its requests are no longer valid.
    /// `false` if there is no such dispatch.
    pub fn complete(&mut self, now: Instant, id: DispatchId) -> bool {
        if !self.items.is_current(id.index, id.generation) {
            return false;
        }
        let item = self.items[id.index];
        let State::AtDevice(AtDevice { since, counts_async, alone }) = item.state else { return false };
        let mut part = item.first;
        while part != NONE {
            let next = self.parts[part].next;
            self.parts.release(part);
            part = next;
        }
        self.items.release(id.index);
        self.at_device[self.level(&item.request)] -= 1;
        self.depth.done(item.request.bytes(), counts_async);
        if counts_async {
            self.async_at_device -= 1;
        } else if item.request.bytes() <= self.config.sync_sample_bytes_max {
            self.depth.sync_done(now, now.0.saturating_sub(since.0), alone);
        }
        true
    }

    /// The requests of a dispatch, in order of address; none after it was completed.
    pub fn parts(&self, id: DispatchId) -> impl Iterator<Item = RequestId> {
        let known = self.items.is_current(id.index, id.generation);
        let mut part = if known { self.items[id.index].first } else { NONE };
        core::iter::from_fn(move || {
            let id = (part != NONE).then(|| self.parts.id(part))?;
            part = self.parts[part].next;
            Some(id)
        })
    }

    /// Waiting requests, after merging.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests at the device, after merging.
    pub fn at_device(&self) -> usize {
        self.items.len() - self.waiting
    }

    /// Maximum async requests at the device now.
    pub const fn async_depth(&self) -> u32 {
        self.depth.limit()
    }

    /// Counts since the beginning.
    pub const fn stats(&self) -> &SchedulerStats {
        &self.stats
    }

    fn level(&self, request: &Request) -> usize {
        let deadline = self.config.algorithm.is_deadline();
        (if deadline { request.priority } else { Priority::default() }) as usize
    }

    /// Whether a request may merge with an adjacent waiting one.
    fn fits(&self, item: u32, request: &Request) -> bool {
        let other = &self.items[item].request;
        (other.direction, other.object) == (request.direction, request.object)
            && (!self.config.algorithm.is_deadline() || other.class() == request.class())
            && other.bytes().saturating_add(request.bytes()) <= self.config.request_bytes_max
    }

    /// Merges two adjacent items, if they may merge. The result has the earlier deadline and its
    /// place in the FIFO.
    fn merge_adjacent(&mut self, level: usize, below: u32, above: u32) -> bool {
        let upper = self.items[above];
        let group = self.group(&upper.request);
        if !self.fits(below, &upper.request) || self.group(&self.items[below].request) != group {
            return false;
        }
        let seeks = self.config.seeks;
        let level = &mut self.levels[level];
        level.remove(&mut self.items, above, group, seeks);
        self.items.release(above);
        let start = self.items[below].request.start;
        level.resize(&mut self.items, below, start, upper.request.end, seeks);
        let lower = &mut self.items[below];
        let last = core::mem::replace(&mut lower.last, upper.last);
        lower.added = lower.added.min(upper.added);
        if upper.deadline < lower.deadline {
            lower.deadline = upper.deadline;
            level.step_out(&mut self.items, below, group);
            level.line_up(&mut self.items, below, group);
        }
        self.parts[last].next = upper.first;
        let mut part = upper.first;
        while part != NONE {
            self.parts[part].item = below;
            part = self.parts[part].next;
        }
        self.waiting -= 1;
        self.stats.closed += 1;
        true
    }

    fn remove_part(&mut self, index: u32, part: Part) -> Remains {
        let item = self.items[part.item];
        let (level, group) = (self.level(&item.request), self.group(&item.request));
        let (level, seeks) = (&mut self.levels[level], self.config.seeks);
        self.parts.release(index);
        if item.first == item.last {
            level.remove(&mut self.items, part.item, group, seeks);
            self.items.release(part.item);
            self.waiting -= 1;
            return Remains::Nothing;
        }
        if item.first == index {
            self.items[part.item].first = part.next;
            level.resize(&mut self.items, part.item, part.end, item.request.end, seeks);
            return Remains::One;
        }
        let mut before = item.first;
        while self.parts[before].next != index {
            before = self.parts[before].next;
        }
        self.parts[before].next = NONE;
        self.items[part.item].last = before;
        level.resize(&mut self.items, part.item, item.request.start, part.start, seeks);
        if part.next == NONE {
            return Remains::One;
        }
        let request = Request { start: part.end, ..item.request };
        let upper = self.items.insert(Item { request, first: part.next, ..item });
        level.insert(&mut self.items, upper, group, seeks);
        self.waiting += 1;
        let mut rest = part.next;
        while rest != NONE {
            self.parts[rest].item = upper;
            rest = self.parts[rest].next;
        }
        Remains::Two
    }
}
