//! What goes into the scheduler and what comes out.

use crate::event::Urgency;
use crate::time::Instant;

/// I/O that someone wants done: bytes of one object, one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First byte: an address on the device, or in the object if places mean nothing to the store.
    pub start: u64,
    /// One past the last byte; above `start`.
    pub end: u64,
    /// Which way the bytes go.
    pub direction: Direction,
    /// The file or object: a merged request never spans two.
    pub object: u64,
    /// Whether someone waits for it: demand reads and the writes of an fsync are [`Urgency::Demand`], readahead and
    /// write-back are [`Urgency::Readahead`].
    pub urgency: Urgency,
    /// The priority of whoever wants it.
    pub priority: Priority,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// Whether someone waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Someone does.
    Sync,
    /// Nobody does.
    Async,
}

/// The classes of `ionice`. A lower one is served when no higher one waits or is at the device, or when it has waited too
/// long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others.
    RealTime,
    /// What is not said otherwise.
    #[default]
    BestEffort,
    /// When nothing else is to do.
    Idle,
}

/// Names an added request until it is completed or cancelled. The same name comes again 2^32 requests later at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Names what goes to the device as one, from its dispatch to its completion. The same name comes again 2^32 requests
/// later at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// A decision: this goes to the device now, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// For [`Scheduler::complete`](super::Scheduler::complete) and [`Scheduler::parts`](super::Scheduler::parts).
    pub id: DispatchId,
    /// All bytes of the requests that were merged; the urgency and priority are those it is scheduled with.
    pub request: Request,
    /// Its class as the algorithm sees it ([`AlgorithmKind::class`](super::AlgorithmKind::class)).
    pub class: Class,
    /// When its oldest part was added.
    pub added: Instant,
    /// When it was to be dispatched; none without deadlines.
    pub deadline: Option<Instant>,
    /// Why it, and why now.
    pub reason: Reason,
}

/// Why a request was dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It had come first, and nothing else counts.
    Arrival,
    /// The batch goes on with the next of its class in disk order.
    Batch,
    /// The batch goes on in disk order with the lower class: within the search there was none of its own.
    Demoted,
    /// A batch begins where the last one ended: nothing of its class has waited too long.
    Onward,
    /// A batch begins with the request whose deadline is next: nothing of its class lies ahead.
    Oldest,
    /// A batch begins with the request whose deadline has passed.
    Expired,
    /// A batch of the disfavoured class begins, for the favoured one was chosen before it as often as it may be.
    Floor,
    /// Its priority is low, but it has waited so long that it goes first.
    Aged,
}

impl RequestId {
    /// A small number that no other request has that has not ended: an index for what the driver remembers of it.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.index as usize
    }
}

impl Request {
    /// Bytes; not 0.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes that are enough of what was merged, where `enough` would be of any: as many requests as that makes, but of one length, since
    /// the last byte comes with the longest of them. Less by a part that `parts` are half of: whole parts go, and one in
    /// excess makes it longer than the rest.
    #[must_use]
    pub const fn share(&self, enough: u64, parts: u64) -> u64 {
        let bytes = self.bytes();
        if enough == 0 || bytes <= enough {
            return enough;
        }
        let share = bytes.div_ceil(bytes.div_ceil(enough));
        share.saturating_sub(parts / 2)
    }

    /// Whether someone waits for it.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self.urgency {
            Urgency::Demand => Class::Sync,
            Urgency::Readahead => Class::Async,
        }
    }
}

impl Priority {
    /// All of them, highest first.
    pub const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Arrival,
        Self::Batch,
        Self::Demoted,
        Self::Onward,
        Self::Oldest,
        Self::Expired,
        Self::Floor,
        Self::Aged,
    ];

    /// Its name in `explain` and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Batch => "batch",
            Self::Demoted => "demoted",
            Self::Onward => "onward",
            Self::Oldest => "oldest",
            Self::Expired => "expired",
            Self::Floor => "floor",
            Self::Aged => "aged",
        }
    }
}
