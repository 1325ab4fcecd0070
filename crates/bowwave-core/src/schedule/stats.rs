//! Counters of a scheduler.

use super::request::Reason;

/// Counts of a [`Scheduler`](super::Scheduler) since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerStats {
    /// Requests added, merged ones included.
    pub added: u64,
    /// Requests merged into a waiting one.
    pub merged: u64,
    /// Waiting requests that became one because a request between them was added.
    pub closed: u64,
    /// Waiting requests promoted to sync.
    pub promoted: u64,
    /// Requests cancelled before dispatch.
    pub cancelled: u64,
    /// By reason, in the order of [`Reason::ALL`].
    pub(super) dispatched: [u64; Reason::ALL.len()],
    /// Dispatches past their deadlines.
    pub late: u64,
}

impl SchedulerStats {
    /// Dispatches of this reason.
    pub const fn dispatched_for(&self, reason: Reason) -> u64 {
        self.dispatched[reason as usize]
    }

    /// All dispatches.
    pub fn dispatches(&self) -> u64 {
        self.dispatched.iter().sum()
    }
}

impl core::ops::AddAssign for SchedulerStats {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.merged += other.merged;
        self.closed += other.closed;
        self.promoted += other.promoted;
        self.cancelled += other.cancelled;
        for (count, other) in self.dispatched.iter_mut().zip(other.dispatched) {
            *count += other;
        }
        self.late += other.late;
    }
}
