//! The scheduler's input and output.

use crate::event::Urgency;
use crate::time::Instant;

/// A request: bytes of one object, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// First byte: an address on the device, or in the object if the store has no addresses.
    pub start: u64,
    /// One past the last byte; above `start`.
    pub end: u64,
    /// Direction of the transfer.
    pub direction: Direction,
    /// The file or object: a merged request never spans two.
    pub object: u64,
    /// Demand reads and the writes of an fsync are [`Urgency::Demand`], readahead and write-back
    /// are [`Urgency::Readahead`].
    pub urgency: Urgency,
    /// Its priority.
    pub priority: Priority,
}

named_enum! {
    /// Direction of a transfer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Direction {
        /// From the device.
        Read = "read",
        /// To the device.
        Write = "write",
    }
}

named_enum! {
    /// Whether a reader or an fsync waits for a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Class {
        /// It does.
        Sync = "sync",
        /// The request is speculative, or write-back.
        Async = "async",
    }
}

named_enum! {
    /// The classes of `ionice`, highest first. A lower one is served when no higher one waits or is
    /// at the device, or when it has waited too long.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Priority {
        /// Before all others.
        RealTime = "real-time",
        /// The default.
        #[default]
        BestEffort = "best-effort",
        /// After all others.
        Idle = "idle",
    }
}

/// Identifies an added request until it is completed or cancelled. It is reused after 2^32 requests
/// at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Identifies a dispatch until it is completed. It is reused after 2^32 requests at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// A request for the device, and why it goes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// For [`Scheduler::complete`](super::Scheduler::complete) and
    /// [`Scheduler::parts`](super::Scheduler::parts).
    pub id: DispatchId,
    /// All bytes of the merged requests, with the urgency and priority it is scheduled with.
    pub request: Request,
    /// Its class as the algorithm sees it ([`AlgorithmKind::class`](super::AlgorithmKind::class)).
    pub class: Class,
    /// When its oldest part was added.
    pub added: Instant,
    /// Its deadline, if the algorithm has deadlines.
    pub deadline: Option<Instant>,
    /// Why it goes now.
    pub reason: Reason,
}

named_enum! {
    /// Why a request was dispatched.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Reason {
        /// It is the oldest, and the algorithm has no other order.
        Arrival = "arrival",
        /// The batch continues in disk order.
        Batch = "batch",
        /// The batch continues in disk order with the lower class: the search found none of its
        /// own.
        Demoted = "demoted",
        /// A batch begins where the last one ended: the next request there has its class, and no
        /// deadline of the class has passed.
        Onward = "onward",
        /// A batch begins with the earliest deadline: the next request in disk order has another
        /// class.
        Oldest = "oldest",
        /// A batch begins with the request whose deadline has passed.
        Expired = "expired",
        /// A batch of the disfavoured class begins: the favoured one had its maximum of turns.
        Floor = "floor",
        /// Its priority is low, but it has waited for the aging time.
        Aged = "aged",
    }
}

impl RequestId {
    /// A small number, unique among the requests that have not ended: an index for the driver's
    /// data.
    pub const fn slot(self) -> usize {
        self.index as usize
    }
}

impl Request {
    /// Bytes; not 0.
    pub const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes at which to split this request into requests of equal length, of at most `enough`
    /// bytes: the longest one would end last. Whole parts go, so a split happens up to a part
    /// later. Half of `parts`, the usual bytes of a part, is subtracted to make up for that.
    pub const fn share(&self, enough: u64, parts: u64) -> u64 {
        let bytes = self.bytes();
        if enough == 0 || bytes <= enough {
            return enough;
        }
        let share = bytes.div_ceil(bytes.div_ceil(enough));
        share.saturating_sub(parts / 2)
    }

    /// Its class.
    pub const fn class(&self) -> Class {
        match self.urgency {
            Urgency::Demand => Class::Sync,
            Urgency::Readahead => Class::Async,
        }
    }
}
