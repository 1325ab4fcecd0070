//! Elevators: which waiting request is dispatched next, and whether to idle for a better one.

use std::collections::BTreeMap;

use bowwave_core::{Instant, Urgency};

use super::pending::{Item, Pending};
use super::{Elevator, QueueConfig};
use crate::device::{Direction, Request};

/// Think times are capped at this multiple of the idle time. Otherwise one long pause outweighs a
/// burst of adjacent reads (Linux's anticipatory scheduler: 20 ms to 6.7).
const THINK_CAP: u64 = 3;

/// The state of an elevator.
#[derive(Debug)]
pub(super) struct Order {
    elevator: Elevator,
    idle_ns: u64,
    near_bytes: u64,
    /// One past the last byte of the last dispatch.
    position: u64,
    /// The owner for which the device is held idle.
    hold: Option<Hold>,
    owners: BTreeMap<u32, Owner>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    owner: u32,
    position: u64,
    until: Instant,
}

/// History of an owner.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    /// When its last read ended, unless it has submitted since.
    ended: Option<Instant>,
    /// Time from the end of its last read to its next request, decaying average, in nanoseconds.
    think_ns: u64,
}

impl Order {
    pub(super) fn new(config: &QueueConfig) -> Self {
        Self {
            elevator: config.elevator,
            idle_ns: config.idle_ns,
            near_bytes: config.near_bytes,
            position: 0,
            hold: None,
            owners: BTreeMap::new(),
        }
    }

    /// When the idle wait ends.
    pub(super) fn idle_until(&self) -> Option<Instant> {
        self.hold.map(|hold| hold.until)
    }

    /// Records a submission.
    pub(super) fn submitted(&mut self, now: Instant, request: &Request) {
        if self.elevator != Elevator::Anticipatory {
            return;
        }
        self.hold = self.hold.filter(|hold| now < hold.until);
        if let Some(owner) = self.owners.get_mut(&request.owner)
            && let Some(ended) = owner.ended.take()
        {
            // Longer than a few waits makes no difference.
            let think = now.0.saturating_sub(ended.0).min(self.idle_ns * THINK_CAP);
            owner.think_ns = (owner.think_ns * 7 + think) / 8;
        }
    }

    /// Records a dispatch.
    pub(super) fn dispatched(&mut self, request: &Request) {
        self.position = request.end();
        self.hold = None;
    }

    /// Records a completion.
    pub(super) fn ended(&mut self, now: Instant, item: &Item) {
        if self.elevator != Elevator::Anticipatory || item.direction == Direction::Write {
            return;
        }
        let owner = self.owners.entry(item.owner).or_default();
        owner.ended = Some(now);
        if item.urgency == Urgency::Demand && owner.think_ns <= self.idle_ns {
            let until = Instant(now.0.saturating_add(self.idle_ns));
            self.hold = Some(Hold { owner: item.owner, position: item.end, until });
        }
    }

    /// The request to dispatch now, if any.
    pub(super) fn next(&mut self, now: Instant, pending: &Pending, idle: bool) -> Option<u32> {
        match self.elevator {
            Elevator::Noop => pending.oldest(),
            Elevator::Clook => self.upwards(pending),
            Elevator::Anticipatory => self.anticipate(now, pending, idle),
            // `Scheduled` dispatches.
            Elevator::Scheduler(_) => None,
        }
    }

    fn upwards(&self, pending: &Pending) -> Option<u32> {
        pending.at_or_after(self.position).or_else(|| pending.lowest())
    }

    fn anticipate(&mut self, now: Instant, pending: &Pending, idle: bool) -> Option<u32> {
        let next = self.upwards(pending)?;
        let Some(hold) = self.hold.filter(|hold| idle && now < hold.until) else {
            self.hold = None;
            return Some(next);
        };
        let low = hold.position.saturating_sub(self.near_bytes);
        let high = hold.position.saturating_add(self.near_bytes);
        // A nearby request costs no more than the wait, of any process.
        let own = pending.within(hold.position, high).next();
        own.or_else(|| pending.within(low, high).find(|&item| pending.items[item].owner == hold.owner))
    }
}
