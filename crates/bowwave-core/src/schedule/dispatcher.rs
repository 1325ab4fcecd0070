//! The dispatcher of one store: the scheduler, the payloads of its requests, and the rules that all
//! drivers share.
//!
//! ```text
//!   add, merge ──► waiting ──next──► at the device (up to the depth) ──► complete
//!                     ▲                                                     │ failed: retry_at
//!                     └────── resume ◄── paused until due ◄── pause ◄───────┘
//! ```
//!
//! A driver sends what [`next`](Dispatcher::next) returns and reports its end. It calls
//! [`resume`](Dispatcher::resume) at the time that [`due`](Dispatcher::due) returns, so a completion
//! never sleeps.

use alloc::vec::Vec;

use super::{Added, Dispatch, DispatchId, Remains, Request, RequestId, Scheduler, SchedulerConfig};
use super::{SchedulerStats, State};
use crate::config::ConfigError;
use crate::time::Instant;

/// Requests that a queue holds before it is full: `BLKDEV_MAX_RQ` of Linux.
pub const QUEUE_REQUESTS: usize = 128;
/// Requests from which a queue is congested and readahead waits: 7/8 of [`QUEUE_REQUESTS`], as in
/// Linux.
pub const CONGESTED_REQUESTS: usize = QUEUE_REQUESTS * 7 / 8;
/// Parallel reads of one run split the smallest request of a spread run into this many parts.
const PARTS: u64 = 4;
/// Retries of a request to a local store. At one failure in a hundred, one request in 10^12 fails
/// for good.
pub const RETRIES_MAX: u32 = 5;
/// Pause before the second retry and later ones, in nanoseconds, times the number of the retry.
/// Shorter pauses fail with the store; longer ones delay a page that the store has by then.
const RETRY_PAUSE_NS: u64 = 1_000_000;

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
    /// Bytes that wait or are at the device.
    pending_bytes: u64,
    /// Requests so far that merge with none.
    loners: u64,
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
            pending_bytes: 0,
            loners: 0,
        })
    }

    /// Takes a request, merged with a waiting one if possible.
    pub fn add(&mut self, now: Instant, request: Request, payload: T) -> Added {
        let added = self.scheduler.add(now, request);
        self.pending_bytes += request.bytes();
        self.keep(added.id, Some(payload));
        added
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
        self.pending_bytes += request.bytes();
        self.keep(added.id, Some(payload));
        Ok(added)
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
            return self.scheduler.promote(now, id).then_some(id);
        }
        self.promote_alone(now, id)
    }

    /// Like [`promote`](Self::promote), but the request leaves the merged one on every device.
    pub fn promote_alone(&mut self, now: Instant, id: RequestId) -> Option<RequestId> {
        let renamed = self.scheduler.promote_alone(now, id)?;
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
        let remains = self.scheduler.cancel(id)?;
        self.pending_bytes -= part.end - part.start;
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

    /// When [`resume`](Self::resume) has a payload.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.paused.iter().map(|&(due, _)| due).min()
    }

    /// A payload whose pause is over, for another [`add`](Self::add).
    pub fn resume(&mut self, now: Instant) -> Option<T> {
        let at = self.paused.iter().position(|&(due, _)| due <= now)?;
        Some(self.paused.remove(at).1)
    }

    /// Requests that wait, after merging.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Requests at the device, after merging.
    #[must_use]
    pub fn at_device(&self) -> usize {
        self.scheduler.at_device()
    }

    /// Counts since the beginning.
    #[must_use]
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

/// When a request to a local store is sent again after it has failed `failures` times: at once after
/// the first failure, later after a pause. None after [`RETRIES_MAX`] retries.
#[must_use]
pub fn retry_at(now: Instant, failures: u32) -> Option<Instant> {
    let pause = if failures > 1 { RETRY_PAUSE_NS * u64::from(failures) } else { 0 };
    (failures <= RETRIES_MAX).then(|| Instant(now.0.saturating_add(pause)))
}
