//! How a scheduler is set up, checked once.

use core::fmt;

use super::request::{Class, Request};
use crate::config::ConfigError;

/// In which order requests go to the device. Algorithms of one name are equal.
#[derive(Clone, Copy, Debug)]
pub enum Algorithm {
    /// In order of arrival, merged.
    Noop,
    /// Sync before async, as the patch of 2009 intended, with a floor for async.
    Deadline,
    /// An algorithm of another crate.
    Other(&'static dyn AlgorithmKind),
}

/// A deadline scheduler of another crate: what it favours, and how its batches continue.
///
/// A static of any type with this trait is an algorithm: [`Algorithm::Other`]. The scheduler does
/// the rest: merging, deadlines, and the choice between the next request in disk order and the
/// oldest one. Priorities and limits on async requests belong to [`Algorithm::Deadline`] alone.
pub trait AlgorithmKind: fmt::Debug + Send + Sync {
    /// The name in reports and on command lines.
    fn name(&self) -> &'static str;

    /// The group of a request. Each group has a deadline and a FIFO.
    fn group(&self, request: &Request) -> Group;

    /// The class of a request in [`Dispatch::class`](super::Dispatch::class).
    fn class(&self, request: &Request) -> Class {
        request.class()
    }

    /// Whether one sync part makes a merged request sync; otherwise its first part decides.
    fn merges_to_sync(&self) -> bool {
        true
    }

    /// Whether a batch of `group` may begin with the next request in disk order, which is of `next`,
    /// instead of the oldest request of `group`. `last` is the group of the last batch.
    fn begins_onward(&self, group: Group, next: Group, last: Group) -> bool {
        let _ = last;
        next == group
    }

    /// Which request of `behind` continues a batch of `batch`, counted from 0. `behind` has the
    /// groups of the requests behind the batch in disk order; `search` is
    /// [`batch_requests`](SchedulerConfig::batch_requests). If there is no such request, the batch is
    /// demoted: it continues with the first of `behind`, and is of that request's group.
    fn next(&self, batch: Group, search: usize, behind: &mut dyn Iterator<Item = Group>) -> Option<usize>;
}

/// What an algorithm tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Served first, and with the earlier deadline: sync requests, or reads.
    Favoured,
    /// The others.
    Other,
}

/// Knobs of a [`Scheduler`](super::Scheduler). Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// In which order.
    pub algorithm: Algorithm,
    /// Time from adding to the deadline of what is favoured: sync requests, reads.
    pub favoured_expire_ns: u64,
    /// The same of what is not: async requests, writes.
    pub other_expire_ns: u64,
    /// Most requests of a batch, which is not interrupted; also how far the next of its class is searched. At least 1.
    pub batch_requests: u32,
    /// How often in succession a batch of the favoured class may begin while one of the other waits.
    pub starved_max: u32,
    /// Whether a request that does not begin where the last one ended ends a batch, as in Linux 2.6.24 to 2.6.27.
    pub batch_contiguous: bool,
    /// Whether requests merge with one that ends where they begin.
    pub merge_back: bool,
    /// Whether requests merge with one that begins where they end.
    pub merge_front: bool,
    /// Most bytes of a merged request. A longer one that is added alone stays as it is.
    pub request_bytes_max: u64,
    /// Whether neighbouring addresses are cheap to do one after another. If not (object stores, which have slots and no
    /// head), batches are of one request, and each class is served in order of its deadlines.
    pub seeks: bool,
    /// Whether a waiting request becomes sync when somebody comes to wait for it. To see what that is worth.
    pub promotion: bool,
    /// How long a request of a lower priority waits before it goes first. Used by [`Algorithm::Deadline`] only, as is all
    /// that follows.
    pub aging_ns: u64,
    /// Most async requests at the device, however fast sync ones are. At least 1.
    pub async_depth_max: u32,
    /// With how many async requests at the device it begins. If that is less than the most, the limit grows with each that
    /// comes back, until sync ones are slow; and what was then taken off it is given back if less came through without. At
    /// least 1.
    pub async_depth_start: u32,
    /// Async requests go only while fewer than so many requests of any class are at the device, so that the last slots are
    /// there for who comes and waits; unless one has expired, or its turn has come by `starved_max`. At least 1.
    pub async_beside_max: u32,
    /// While a sync request is at the device, write-back does not join it, unless it has expired, or as many sync requests have
    /// gone there since its last one as `starved_max` says. For devices that put what they have in an order of their own: a
    /// stream of writes would go before whoever waits, however few of them are there at once.
    pub write_back_waits: bool,
    /// While sync requests take longer at the device than so many times what they take nearly alone, fewer async ones go there. At
    /// least 1; [`u32::MAX`] for no such limit.
    pub sync_slowdown_max: u32,
    /// Sync requests that take no longer than this are never slow, whatever they take alone.
    pub sync_fast_ns: u64,
    /// Only sync requests of at most so many bytes tell whether they are slow: longer ones are it by themselves. [`u64::MAX`] for all.
    pub sync_sample_bytes_max: u64,
    /// If sync requests are slow beside one async request, it is shortened down to so many bytes, as far as it was merged.
    /// [`u64::MAX`] for never.
    pub async_bytes_min: u64,
}

impl SchedulerConfig {
    /// The published figures of an algorithm, and ours where there are none: Linux's 0.5 s and 5 s, 16 and 2; requests up
    /// to 512 KiB; aging after 10 s as mq-deadline has it; 64 async requests at a device, fewer if sync ones take twice
    /// their time.
    #[must_use]
    pub const fn of(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            favoured_expire_ns: 500_000_000,
            other_expire_ns: 5_000_000_000,
            batch_requests: 16,
            starved_max: 2,
            batch_contiguous: false,
            merge_back: true,
            merge_front: true,
            request_bytes_max: 512 << 10,
            seeks: true,
            promotion: true,
            aging_ns: 10_000_000_000,
            async_depth_max: 64,
            async_depth_start: u32::MAX,
            async_beside_max: u32::MAX,
            write_back_waits: false,
            sync_slowdown_max: 2,
            sync_fast_ns: 0,
            sync_sample_bytes_max: u64::MAX,
            async_bytes_min: u64::MAX,
        }
    }

    /// For a store that memory is swapped to, which takes `depth` requests at once and `latency_ns` for one alone: pages
    /// that someone waits for are single and many, readahead and write-out are long. So requests are no longer than it takes to
    /// be efficient where nothing has to be sought, writes wait for readers, and what keeps those that wait for single pages
    /// no longer than three times the latency does no harm; what does is shortened.
    #[must_use]
    pub fn for_spill(depth: u32, latency_ns: u64, seeks: bool) -> Self {
        let beside = (depth - depth / 8).max(1);
        Self {
            request_bytes_max: if seeks { 1 << 20 } else { 256 << 10 },
            seeks,
            async_depth_max: beside,
            async_beside_max: beside,
            write_back_waits: !seeks,
            sync_fast_ns: latency_ns.saturating_mul(3),
            sync_sample_bytes_max: 16 << 10,
            async_bytes_min: if seeks { u64::MAX } else { 32 << 10 },
            ..Self::of(Algorithm::Deadline)
        }
    }

    /// Checks every knob.
    ///
    /// # Errors
    /// The first that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let counts = [
            ("batch_requests", self.batch_requests),
            ("async_depth_max", self.async_depth_max),
            ("async_depth_start", self.async_depth_start),
            ("async_beside_max", self.async_beside_max),
            ("sync_slowdown_max", self.sync_slowdown_max),
        ];
        match counts.into_iter().find(|&(_, value)| value == 0) {
            Some((field, _)) => Err(ConfigError { field, value: 0, bound: "at least 1" }),
            None => Ok(()),
        }
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self::of(Algorithm::Deadline)
    }
}

impl Algorithm {
    /// The algorithms of this crate.
    pub const ALL: [Self; 2] = [Self::Noop, Self::Deadline];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Deadline => "deadline",
            Self::Other(kind) => kind.name(),
        }
    }

    /// Whether it is [`Algorithm::Deadline`], which alone has priorities and limits.
    pub(super) const fn is_deadline(self) -> bool {
        matches!(self, Self::Deadline)
    }
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Algorithm {}

impl Group {
    /// Both, favoured first.
    pub(super) const ALL: [Self; 2] = [Self::Favoured, Self::Other];
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
