//! Statistics of a queue.

use bowwave_core::Urgency;

use crate::device::Direction;

/// Counters of a [`Queue`](super::Queue) since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Requests dispatched: reads, writes.
    pub requests: [u64; 2],
    /// Their bytes: reads, writes.
    pub bytes: [u64; 2],
    /// Submitted requests merged into another.
    pub merged: u64,
    /// Submitted requests that found no place and waited outside.
    pub blocked: u64,
    /// Requests cancelled before dispatch.
    pub cancelled: u64,
    /// Time the device was busy, in nanoseconds.
    pub busy_ns: u64,
    /// Time that reads were congested, in nanoseconds.
    pub congested_ns: u64,
    /// Requests waiting or at the device, integrated over nanoseconds: divide by the time for the
    /// mean depth.
    pub depth_ns: u128,
    /// Maximum requests at once.
    pub depth_max: usize,
    /// Requests promoted to demand after submission.
    pub promoted: u64,
    /// Requests dispatched past their deadlines, after merging.
    pub expired: u64,
    /// By class and direction, as submitted: see [`ClassDepth::index`].
    pub classes: [ClassDepth; 4],
}

/// Requests of a class and direction that wait or are at the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassDepth {
    /// Now.
    pub now: u32,
    /// Maximum so far.
    pub max: u32,
    /// Integral over nanoseconds.
    pub ns: u128,
}

impl ClassDepth {
    /// Index of a class: demand reads, readahead, demand writes, write-back.
    pub const fn index(direction: Direction, urgency: Urgency) -> usize {
        2 * direction as usize + matches!(urgency, Urgency::Readahead) as usize
    }
}

impl QueueStats {
    /// Adds a request.
    pub(super) fn enter(&mut self, direction: Direction, urgency: Urgency) {
        let class = &mut self.classes[ClassDepth::index(direction, urgency)];
        class.now += 1;
        class.max = class.max.max(class.now);
    }

    /// Removes a request.
    pub(super) fn leave(&mut self, direction: Direction, urgency: Urgency) {
        self.classes[ClassDepth::index(direction, urgency)].now -= 1;
    }

    /// Accounts passed time.
    pub(super) fn pass(&mut self, ns: u64) {
        self.classes.iter_mut().for_each(|class| class.ns += u128::from(ns) * u128::from(class.now));
    }
}
