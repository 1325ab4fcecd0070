//! The core's scheduler before a device: what waits, waits there, and is merged there.

use bowwave_core::Instant;
use bowwave_core::schedule::{self, DispatchId, Priority, Remains, RequestId, Scheduler, SchedulerConfig};

use super::QueueConfig;
use super::pending::{Part, Pending, Rest};
use crate::device::{Device, Direction, Request};

/// Runs that are read at once come in so many parts to the least request, as in the engine.
const PARTS: u64 = 4;

/// A scheduler, and which part each of its requests is.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) scheduler: Scheduler,
    /// By [`RequestId::slot`].
    parts: Vec<u32>,
    /// The parts of what was dispatched last.
    taken: Vec<u32>,
    /// See [`QueueConfig::spread_bytes_min`].
    spread_bytes_min: u64,
    request_bytes_max: u64,
    slots: u64,
    seeks: bool,
    /// Bytes that wait here or are at the device.
    pending_bytes: u64,
}

impl Scheduled {
    /// The scheduler that the elevator asks for, if it does.
    pub(super) fn new(config: &QueueConfig, device: &dyn Device) -> Option<Self> {
        let request_bytes_max = device.request_bytes_max();
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
        Some(Self {
            scheduler,
            parts: Vec::new(),
            taken: Vec::new(),
            spread_bytes_min: config.spread_bytes_min,
            request_bytes_max,
            slots: device.depth().max(1) as u64,
            seeks: knobs.seeks,
            pending_bytes: 0,
        })
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
        self.pending_bytes += pending.parts[part].request.bytes;
        self.name(pending, part, id);
    }

    fn name(&mut self, pending: &mut Pending, part: u32, id: RequestId) {
        pending.parts[part].scheduled = Some(id);
        if self.parts.len() <= id.slot() {
            self.parts.resize(id.slot() + 1, 0);
        }
        self.parts[id.slot()] = part;
    }

    /// What goes to the device now, as an item, and whether a part of what it was merged to stays in line.
    pub(super) fn dispatch(&mut self, now: Instant, pending: &mut Pending) -> Option<(u32, bool)> {
        let before = self.scheduler.waiting();
        let enough = match self.spread_bytes_min {
            0 => u64::MAX,
            least => (self.pending_bytes / self.slots).max(least).min(self.request_bytes_max),
        };
        let parts = self.spread_bytes_min / PARTS;
        let dispatch = self.scheduler.dispatch_up_to(now, |request| request.share(enough, parts))?;
        self.taken.clear();
        self.taken.extend(self.scheduler.parts(dispatch.id).map(|id| self.parts[id.slot()]));
        let expired = dispatch.deadline.is_some_and(|deadline| deadline < now);
        Some((pending.dispatched(&dispatch, &self.taken, expired), self.scheduler.waiting() == before))
    }

    /// Someone waits for a part that waits here: how many requests more there are for that. As the engine does it, a part goes alone where
    /// no head comes by the rest of what it was merged to.
    pub(super) fn promote(&mut self, now: Instant, pending: &mut Pending, part: u32) -> isize {
        let Some(id) = pending.parts[part].scheduled else { return 0 };
        if self.seeks {
            self.scheduler.promote(now, id);
            return 0;
        }
        let before = self.scheduler.waiting();
        if let Some(id) = self.scheduler.promote_alone(now, id) {
            self.name(pending, part, id);
        }
        self.scheduler.waiting() as isize - before as isize
    }

    /// What was dispatched so has ended, and had so many bytes.
    pub(super) fn complete(&mut self, now: Instant, id: DispatchId, bytes: u64) {
        self.pending_bytes -= bytes;
        let known = self.scheduler.complete(now, id);
        debug_assert!(known, "{id:?} was not at the device");
    }

    /// Drops a part that waits here.
    pub(super) fn drop_part(&mut self, pending: &mut Pending, part: u32) -> Rest {
        let Part { scheduled, request, .. } = pending.parts[part];
        pending.parts.release(part);
        self.pending_bytes -= request.bytes;
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
