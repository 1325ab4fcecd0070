//! The core's dispatcher in front of a device: merges and orders waiting parts.

use bowwave_core::Instant;
use bowwave_core::schedule::{self, Added, DispatchId, Dispatcher, Priority, Remains, SchedulerConfig};

use super::QueueConfig;
use super::pending::{Part, Pending, Rest};
use crate::device::{Device, Request};

/// A dispatcher of parts.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) dispatcher: Dispatcher<u32>,
    /// The parts of the last dispatch.
    taken: Vec<u32>,
}

impl Scheduled {
    /// Creates the dispatcher, if the elevator is an algorithm of the core.
    pub(super) fn new(config: &QueueConfig, device: &dyn Device) -> Option<Self> {
        let algorithm = config.elevator.algorithm()?;
        let knobs = &config.scheduler;
        let scheduler = SchedulerConfig {
            algorithm,
            request_bytes_max: device.request_bytes_max(),
            merge_back: config.merge,
            merge_front: config.merge && knobs.merge_front,
            ..knobs.clone()
        };
        let dispatcher = Dispatcher::new(scheduler, device.depth().max(1), config.spread_bytes_min);
        let dispatcher = dispatcher.expect("the queue's configuration was checked");
        Some(Self { dispatcher, taken: Vec::new() })
    }

    /// Merges a part with a waiting one. Returns how many others became one thereby; `None` if the
    /// part was not merged.
    pub(super) fn merge(&mut self, pending: &mut Pending, part: u32) -> Option<usize> {
        let Added { id, closed, .. } =
            self.dispatcher.merge(&request(&pending.parts[part].request), part).ok()?;
        pending.parts[part].scheduled = Some(id);
        Some(usize::from(closed))
    }

    pub(super) fn add(&mut self, now: Instant, pending: &mut Pending, part: u32) {
        let added = self.dispatcher.add(now, request(&pending.parts[part].request), part);
        pending.parts[part].scheduled = Some(added.id);
    }

    /// The next request for the device, as an item, and whether a remainder still waits.
    pub(super) fn dispatch(&mut self, now: Instant, pending: &mut Pending) -> Option<(u32, bool)> {
        let before = self.dispatcher.waiting();
        self.taken.clear();
        let dispatch = self.dispatcher.next(now, &mut self.taken)?;
        let expired = dispatch.deadline.is_some_and(|deadline| deadline < now);
        Some((pending.dispatched(&dispatch, &self.taken, expired), self.dispatcher.waiting() == before))
    }

    /// Promotes a waiting part. Returns the change in waiting requests, as the part leaves a merged
    /// one.
    pub(super) fn promote(&mut self, now: Instant, pending: &mut Pending, part: u32) -> isize {
        let Some(id) = pending.parts[part].scheduled else { return 0 };
        let before = self.dispatcher.waiting();
        if let Some(id) = self.dispatcher.promote(now, id) {
            pending.parts[part].scheduled = Some(id);
        }
        self.dispatcher.waiting() as isize - before as isize
    }

    /// Completes a dispatch.
    pub(super) fn complete(&mut self, now: Instant, id: DispatchId) {
        let known = self.dispatcher.complete(now, id);
        debug_assert!(known, "{id:?} was not at the device");
    }

    /// Drops a waiting part.
    pub(super) fn drop_part(&mut self, pending: &mut Pending, part: u32) -> Rest {
        let Part { scheduled, .. } = pending.parts[part];
        pending.parts.release(part);
        match scheduled.and_then(|id| self.dispatcher.cancel(id)) {
            Some((_, Remains::Nothing)) => Rest::Nothing,
            Some((_, Remains::Two)) => Rest::Two,
            Some((_, Remains::One)) | None => Rest::One,
        }
    }
}

/// Converts a device request to a scheduler request. Devices have no priorities.
fn request(request: &Request) -> schedule::Request {
    schedule::Request {
        start: request.start,
        end: request.end(),
        direction: request.direction,
        object: request.object.into(),
        urgency: request.urgency,
        priority: Priority::default(),
    }
}
