//! The dispatcher of one store: the scheduler, the payloads of its requests, and the rules that all
//! drivers share.
//!
//! ```text
//!   add, merge ──► waiting ──next──► at the device (up to the depth) ──► complete
//!                     ▲                │ late: a second request             │ failed
//!                     └──── expire ◄───┴── paused until due ◄── pause ◄─────┘
//! ```
//!
//! A driver sends what [`next`](Dispatcher::next) returns and reports its end. It calls
//! [`expire`](Dispatcher::expire) at the time of [`next_timer`](Dispatcher::next_timer), so a
//! completion never sleeps. [`Retry`](crate::network::Retry) decides whether a failed request
//! pauses, and until when.

use alloc::vec::Vec;

use super::race::Races;
use super::{Added, Direction, Dispatch, DispatchId, Priority, Remains, Request, RequestId, Scheduler};
use super::{SchedulerConfig, SchedulerStats, SchedulerTuning, State};
use crate::config::ConfigError;
use crate::network::Hedging;
use crate::time::Instant;

/// Requests that a queue holds before it is full: `BLKDEV_MAX_RQ` of Linux.
pub const QUEUE_REQUESTS: usize = 128;
/// Requests from which a queue is congested and readahead waits: 7/8 of [`QUEUE_REQUESTS`], as in
/// Linux.
pub const CONGESTED_REQUESTS: usize = QUEUE_REQUESTS * 7 / 8;
/// Parallel reads of one run split the smallest request of a spread run into this many parts.
const PARTS: u64 = 4;

/// The requests for one store, each with a payload of the driver.
#[derive(Debug)]
pub struct Dispatcher<T> {
    scheduler: Scheduler,
    depth: usize,
    spread_bytes_min: u64,
    /// Payloads of waiting requests, by [`RequestId::slot`].
    waiting: Vec<Option<T>>,
    /// Payloads that wait for their retry. Unordered: there are few.
    paused: Vec<(Instant, T)>,
    /// Reads that may be requested twice, if that is enabled.
    races: Option<Races>,
    /// Bytes that wait or are at the device.
    pending_bytes: u64,
    /// Bytes of reads that wait.
    waiting_read_bytes: u64,
    /// Requests so far that merge with none.
    loners: u64,
}

/// What a driver must do when a timer of a [`Dispatcher`] expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired<T> {
    /// The pause of a failed request is over: [add](Dispatcher::add_alone) it again.
    Retry(T),
    /// A read is late: request it a second time, into other memory.
    Hedge(DispatchId),
}

impl<T> Dispatcher<T> {
    /// A dispatcher without requests. At most `depth` requests are at the device.
    ///
    /// Waiting bytes are spread over all `depth` slots, in requests of at least `spread_bytes_min`
    /// bytes. Otherwise the first free slot takes everything and the others idle. 0 does not
    /// spread: for devices with a head, which serve one request after the other.
    ///
    /// # Errors
    /// A knob that is out of bounds.
    pub fn new(config: SchedulerConfig, depth: usize, spread_bytes_min: u64) -> Result<Self, ConfigError> {
        Ok(Self {
            scheduler: Scheduler::new(config)?,
            depth,
            spread_bytes_min,
            waiting: Vec::new(),
            paused: Vec::new(),
            races: None,
            pending_bytes: 0,
            waiting_read_bytes: 0,
            loners: 0,
        })
    }

    /// The same dispatcher, which hedges late reads.
    #[must_use]
    pub fn with_hedging(self, hedging: Hedging) -> Self {
        Self { races: Some(Races::new(hedging)), ..self }
    }

    /// As [`Scheduler::tune`].
    pub fn tune(&mut self, tuning: SchedulerTuning) {
        self.scheduler.tune(tuning);
    }

    /// Takes a request, merged with a waiting one if possible.
    pub fn add(&mut self, now: Instant, request: Request, payload: T) -> Added {
        let added = self.scheduler.add(now, request);
        self.added(&request, added, payload)
    }

    /// Takes a request that merges with no other: the retry of a request that failed beside others.
    pub fn add_alone(&mut self, now: Instant, request: Request, payload: T) -> Added {
        self.loners += 1;
        self.add(now, Request { object: u64::MAX - self.loners, ..request }, payload)
    }

    /// Takes a request only if it merges with a waiting one.
    ///
    /// # Errors
    /// The payload, if it does not.
    pub fn merge(&mut self, request: &Request, payload: T) -> Result<Added, T> {
        let Some(added) = self.scheduler.merge(request) else { return Err(payload) };
        Ok(self.added(request, added, payload))
    }

    fn added(&mut self, request: &Request, added: Added, payload: T) -> Added {
        self.pending_bytes += request.bytes();
        self.waiting_read_bytes += read_bytes(request.direction, request.bytes());
        self.keep(added.id, Some(payload));
        added
    }

    /// The next request for the device, whose payloads are appended to `parts` in order of address.
    /// None if the device is full or every waiting request has to wait.
    pub fn next(&mut self, now: Instant, parts: &mut Vec<T>) -> Option<Dispatch> {
        if self.scheduler.at_device() >= self.depth {
            return None;
        }
        let least = self.spread_bytes_min;
        let enough = match least {
            0 => u64::MAX,
            _ => (self.pending_bytes / self.depth as u64)
                .max(least)
                .min(self.scheduler.config.request_bytes_max),
        };
        let dispatch = self.scheduler.dispatch_up_to(now, |request| request.share(enough, least / PARTS))?;
        self.waiting_read_bytes -= read_bytes(dispatch.request.direction, dispatch.request.bytes());
        let waiting = &mut self.waiting;
        parts.extend(self.scheduler.parts(dispatch.id).filter_map(|id| waiting[id.slot()].take()));
        Some(dispatch)
    }

    /// The payload of a waiting request.
    pub fn payload_mut(&mut self, id: RequestId) -> Option<&mut T> {
        self.is_waiting(id).then(|| self.waiting[id.slot()].as_mut())?
    }

    /// Makes a waiting request a demand request; returns its new name.
    ///
    /// A head that goes there reads everything that was merged. Elsewhere the request leaves the
    /// merged one, whose rest would delay it. None if nothing changes; see [`Scheduler::promote`].
    pub fn promote(&mut self, now: Instant, id: RequestId) -> Option<RequestId> {
        if self.scheduler.config.seeks {
            return self.promote_merged(now, id).then_some(id);
        }
        self.promote_alone(now, id)
    }

    /// Like [`promote`](Self::promote), but the request stays in the merged one on every device.
    /// Returns whether it waits and may be promoted.
    pub fn promote_merged(&mut self, now: Instant, id: RequestId) -> bool {
        self.scheduler.promote(now, id)
    }

    /// Like [`promote`](Self::promote), but the request leaves the merged one on every device.
    pub fn promote_alone(&mut self, now: Instant, id: RequestId) -> Option<RequestId> {
        let renamed = self.scheduler.promote_alone(now, id)?;
        let payload = self.waiting[id.slot()].take();
        self.keep(renamed, payload);
        Some(renamed)
    }

    /// Raises the priority of a waiting request; returns its new name. None if nothing changes; see
    /// [`Scheduler::raise`].
    pub fn raise(&mut self, now: Instant, id: RequestId, priority: Priority) -> Option<RequestId> {
        let renamed = self.scheduler.raise(now, id, priority)?;
        let payload = self.waiting[id.slot()].take();
        self.keep(renamed, payload);
        Some(renamed)
    }

    /// Drops a waiting request. None if it does not wait.
    pub fn cancel(&mut self, id: RequestId) -> Option<(T, Remains)> {
        if !self.is_waiting(id) {
            return None;
        }
        let part = self.scheduler.parts[id.index];
        let direction = self.scheduler.items[part.item].request.direction;
        let remains = self.scheduler.cancel(id)?;
        self.pending_bytes -= part.end - part.start;
        self.waiting_read_bytes -= read_bytes(direction, part.end - part.start);
        Some((self.waiting[id.slot()].take()?, remains))
    }

    /// The device has ended a dispatch, whatever the outcome. `false` if there is no such dispatch.
    pub fn complete(&mut self, now: Instant, id: DispatchId) -> bool {
        let items = &self.scheduler.items;
        let bytes = items.is_current(id.index, id.generation).then(|| items[id.index].request.bytes());
        let known = self.scheduler.complete(now, id);
        self.pending_bytes -= bytes.filter(|_| known).unwrap_or(0);
        known
    }

    /// Keeps the payload of a failed request until `due`.
    pub fn pause(&mut self, due: Instant, payload: T) {
        self.paused.push((due, payload));
    }

    /// The payloads that pause.
    pub fn paused_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.paused.iter_mut().map(|(_, payload)| payload)
    }

    /// A demand read was sent. Returns whether it may be hedged; if so, the driver reports its
    /// responses with [`answered`](Self::answered) and [`failed`](Self::failed).
    pub fn sent(&mut self, now: Instant, id: DispatchId, bytes: u64) -> bool {
        self.races.as_mut().is_some_and(|races| races.begin(now, id, bytes))
    }

    /// A request of a hedged read returned its bytes. Returns whether it was the first to do so.
    pub fn answered(&mut self, now: Instant, id: DispatchId, is_second: bool) -> bool {
        self.races.as_mut().is_some_and(|races| races.answered(now, id, is_second))
    }

    /// A request of a hedged read failed. Returns whether the read has failed: it has no other
    /// request in flight, and had no response.
    pub fn failed(&mut self, id: DispatchId) -> bool {
        self.races.as_mut().is_some_and(|races| races.failed(id))
    }

    /// When [`expire`](Self::expire) has an event.
    pub fn next_timer(&self) -> Option<Instant> {
        let retry = self.paused.iter().map(|&(due, _)| due).min();
        let hedge = self.races.as_ref().and_then(Races::next_timer);
        retry.into_iter().chain(hedge).min()
    }

    /// The next event whose time has come.
    pub fn expire(&mut self, now: Instant) -> Option<Expired<T>> {
        if let Some(at) = self.paused.iter().position(|&(due, _)| due <= now) {
            return Some(Expired::Retry(self.paused.remove(at).1));
        }
        self.races.as_mut()?.expire(now).map(Expired::Hedge)
    }

    /// Whether [`CONGESTED_REQUESTS`] or more reads wait, so that readahead should wait, too.
    /// Counted in requests of the largest size, as they merge.
    pub fn is_congested(&self) -> bool {
        self.waiting_reads() >= CONGESTED_REQUESTS as u64
    }

    /// Whether [`QUEUE_REQUESTS`] or more reads wait, counted likewise. As in Linux, a full queue
    /// drops readahead that arrives.
    pub fn is_full(&self) -> bool {
        self.waiting_reads() >= QUEUE_REQUESTS as u64
    }

    fn waiting_reads(&self) -> u64 {
        self.waiting_read_bytes / self.scheduler.config.request_bytes_max.max(1)
    }

    /// Requests that wait, after merging.
    pub fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Requests at the device, after merging.
    pub fn at_device(&self) -> usize {
        self.scheduler.at_device()
    }

    /// Counts since the beginning.
    pub const fn stats(&self) -> &SchedulerStats {
        self.scheduler.stats()
    }

    fn is_waiting(&self, id: RequestId) -> bool {
        let Scheduler { items, parts, .. } = &self.scheduler;
        parts.is_current(id.index, id.generation) && items[parts[id.index].item].state == State::Waits
    }

    fn keep(&mut self, id: RequestId, payload: Option<T>) {
        if self.waiting.len() <= id.slot() {
            self.waiting.resize_with(id.slot() + 1, || None);
        }
        self.waiting[id.slot()] = payload;
    }
}

/// The bytes, if they are read.
fn read_bytes(direction: Direction, bytes: u64) -> u64 {
    if direction == Direction::Read { bytes } else { 0 }
}
