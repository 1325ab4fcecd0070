//! The core's scheduler before a device: what waits, waits there, and is merged there.

use bowwave_core::Instant;
use bowwave_core::schedule::{self, DispatchId, Priority, Remains, RequestId, Scheduler, SchedulerConfig};

use super::QueueConfig;
use super::pending::{Part, Pending, Rest};
use crate::device::{Direction, Request};

/// A scheduler, and which part each of its requests is.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) scheduler: Scheduler,
    /// By [`RequestId::slot`].
    parts: Vec<u32>,
    /// The parts of what was dispatched last.
    taken: Vec<u32>,
}

impl Scheduled {
    /// The scheduler that the elevator asks for, if it does.
    pub(super) fn new(config: &QueueConfig, request_bytes_max: u64) -> Option<Self> {
        let algorithm = config.elevator.algorithm()?;
        let knobs = &config.scheduler;
        let scheduler = Scheduler::new(SchedulerConfig {
            algorithm,
            request_bytes_max,
            merge_back: config.merge,
            merge_front: config.merge && knobs.merge_front,
            ..knobs.clone()
        });
        let scheduler = scheduler.expect("the queue's configuration was checked");
        Some(Self { scheduler, parts: Vec::new(), taken: Vec::new() })
    }

    /// Adds a part to one that waits; whether that could be, and how many others became one thereby.
    pub(super) fn merge(&mut self, pending: &mut Pending, part: u32) -> Option<usize> {
        let added = self.scheduler.merge(&request(&pending.parts[part].request))?;
        self.keep(pending, part, added.id);
        Some(usize::from(added.closed))
    }

    pub(super) fn add(&mut self, now: Instant, pending: &mut Pending, part: u32) {
        let added = self.scheduler.add(now, request(&pending.parts[part].request));
        self.keep(pending, part, added.id);
    }

    fn keep(&mut self, pending: &mut Pending, part: u32, id: RequestId) {
        pending.parts[part].scheduled = Some(id);
        if self.parts.len() <= id.slot() {
            self.parts.resize(id.slot() + 1, 0);
        }
        self.parts[id.slot()] = part;
    }

    /// What goes to the device now, as an item.
    pub(super) fn dispatch(&mut self, now: Instant, pending: &mut Pending) -> Option<u32> {
        let dispatch = self.scheduler.dispatch(now)?;
        self.taken.clear();
        self.taken.extend(self.scheduler.parts(dispatch.id).map(|id| self.parts[id.slot()]));
        let expired = dispatch.deadline.is_some_and(|deadline| deadline < now);
        Some(pending.dispatched(&dispatch, &self.taken, expired))
    }

    pub(super) fn complete(&mut self, now: Instant, id: DispatchId) {
        let known = self.scheduler.complete(now, id);
        debug_assert!(known, "{id:?} was not at the device");
    }

    /// Drops a part that waits here.
    pub(super) fn drop_part(&mut self, pending: &mut Pending, part: u32) -> Rest {
        let Part { scheduled, .. } = pending.parts[part];
        pending.parts.release(part);
        match scheduled.and_then(|id| self.scheduler.cancel(id)) {
            Some(Remains::Nothing) => Rest::Nothing,
            Some(Remains::Two) => Rest::Two,
            Some(Remains::One) | None => Rest::One,
        }
    }
}

/// A device's request as the scheduler has it. Devices know no priorities.
fn request(request: &Request) -> schedule::Request {
    schedule::Request {
        start: request.start,
        end: request.end(),
        direction: match request.direction {
            Direction::Read => schedule::Direction::Read,
            Direction::Write => schedule::Direction::Write,
        },
        object: request.object.into(),
        urgency: request.urgency,
        priority: Priority::default(),
    }
}
