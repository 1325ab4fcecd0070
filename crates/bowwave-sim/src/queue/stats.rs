//! What a queue counts.

use bowwave_core::Urgency;

use crate::device::Direction;

/// Counts of a [`Queue`](super::Queue) since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Requests given to the device: reads, writes.
    pub requests: [u64; 2],
    /// Their bytes: reads, writes.
    pub bytes: [u64; 2],
    /// Submitted requests that became part of another.
    pub merged: u64,
    /// Submitted requests that found no place and had to wait outside.
    pub blocked: u64,
    /// Requests dropped before the device had them.
    pub cancelled: u64,
    /// Time that the device had something to do, in nanoseconds.
    pub busy_ns: u64,
    /// Time that reads were congested, in nanoseconds.
    pub congested_ns: u64,
    /// Requests waiting or at the device, summed over nanoseconds: divide by the time for the average depth.
    pub depth_ns: u128,
    /// Most requests at once.
    pub depth_max: usize,
    /// Submitted requests that someone waits for since after they were submitted.
    pub promoted: u64,
    /// Requests that went to the device past their deadlines, after merging.
    pub expired: u64,
    /// By class and direction, as submitted: see [`ClassDepth::index`].
    pub classes: [ClassDepth; 4],
}

/// How many requests of a class and direction wait or are at the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassDepth {
    /// Now.
    pub now: u32,
    /// At most so far.
    pub max: u32,
    /// Summed over nanoseconds.
    pub ns: u128,
}

impl ClassDepth {
    /// The place of a class: reads that someone waits for, readahead, writes that someone waits for, write-back.
    #[must_use]
    pub const fn index(direction: Direction, urgency: Urgency) -> usize {
        2 * direction as usize + matches!(urgency, Urgency::Readahead) as usize
    }
}

impl QueueStats {
    /// One more of a class.
    pub(super) fn enter(&mut self, direction: Direction, urgency: Urgency) {
        let class = &mut self.classes[ClassDepth::index(direction, urgency)];
        class.now += 1;
        class.max = class.max.max(class.now);
    }

    /// One less of a class.
    pub(super) fn leave(&mut self, direction: Direction, urgency: Urgency) {
        self.classes[ClassDepth::index(direction, urgency)].now -= 1;
    }

    /// Time passes.
    pub(super) fn pass(&mut self, ns: u64) {
        self.classes.iter_mut().for_each(|class| class.ns += u128::from(ns) * u128::from(class.now));
    }

    /// Bytes of a read at the device on average; 0 before the first.
    #[must_use]
    pub fn read_bytes_avg(&self) -> f64 {
        if self.requests[0] == 0 { 0.0 } else { self.bytes[0] as f64 / self.requests[0] as f64 }
    }
}
