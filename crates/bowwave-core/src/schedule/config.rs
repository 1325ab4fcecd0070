//! The configuration of a scheduler, validated once.

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

    /// Whether a batch of `group` may begin with the next request in disk order, which is of
    /// `next`, instead of the oldest request of `group`. `last` is the group of the last batch.
    fn begins_in_disk_order(&self, group: Group, next: Group, last: Group) -> bool {
        let _ = last;
        next == group
    }

    /// Which request of `behind` continues a batch of `batch`, counted from 0. `behind` has the
    /// groups of the requests behind the batch in disk order; `search` is
    /// [`batch_requests`](SchedulerConfig::batch_requests). If there is no such request, the batch
    /// is demoted: it continues with the first of `behind`, and is of that request's group.
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
    /// The order of requests.
    pub algorithm: Algorithm,
    /// Time until the deadline of a favoured request: sync requests, reads. Shorter times interrupt
    /// disk order more often.
    pub favoured_expire_ns: u64,
    /// Time until the deadline of other requests: async requests, writes.
    pub other_expire_ns: u64,
    /// Maximum requests of a batch, which is not interrupted. Also the maximum requests that are
    /// searched for the next one of its class. At least 1.
    pub batch_requests: u32,
    /// How many favoured batches in succession may begin while a request of the other group waits.
    pub starved_max: u32,
    /// Whether a request that does not begin where the last one ended ends a batch, as in Linux
    /// 2.6.24 to 2.6.27.
    pub batch_contiguous: bool,
    /// Whether requests merge with one that ends where they begin.
    pub merge_back: bool,
    /// Whether requests merge with one that begins where they end.
    pub merge_front: bool,
    /// Maximum bytes of a merged request. A longer one that is added alone stays as it is.
    pub request_bytes_max: u64,
    /// Whether the device has a head, so that adjacent addresses are cheap in sequence. If not, as
    /// in object stores, batches have one request, and each class is served in order of deadlines.
    pub seeks: bool,
    /// Whether a waiting request becomes sync when a reader begins to wait for it. Off only to
    /// measure the effect.
    pub promotion: bool,
    /// How long a request of a lower priority waits before it goes first. Used by
    /// [`Algorithm::Deadline`] only, as are all fields below.
    pub aging_ns: u64,
    /// Maximum async requests at the device, however fast sync ones are. At least 1.
    pub async_depth_max: u32,
    /// Initial limit of async requests at the device. If it is below the maximum, it grows by one
    /// with each completed async request, until sync ones are slow. It is then halved, and restored
    /// if that lowers throughput. At least 1.
    pub async_depth_start: u32,
    /// Async requests are dispatched only while fewer requests than this, of any class, are at the
    /// device: the last slots are for demand. Expired requests and those chosen by `starved_max`
    /// are exempt. At least 1.
    pub async_beside_max: u32,
    /// Whether write-back waits while a sync request is at the device. Expired requests go, and one
    /// after `starved_max` sync requests. For devices that reorder their queue: there, even a few
    /// writes of a stream delay sync requests.
    pub write_back_waits: bool,
    /// The limit of async requests falls while sync ones take longer than this multiple of their
    /// time beside at most one async request. At least 1; [`u32::MAX`] for no such limit.
    pub sync_slowdown_max: u32,
    /// Sync requests that take at most this time never count as slow.
    pub sync_fast_ns: u64,
    /// Maximum bytes of a sync request whose time is measured; longer ones are slow because of
    /// their length. [`u64::MAX`] for all.
    pub sync_sample_bytes_max: u64,
    /// If sync requests are slow beside one async request, merged async requests are split, down to
    /// this number of bytes. [`u64::MAX`] for never.
    pub async_bytes_min: u64,
}

impl SchedulerConfig {
    /// The same defaults for every algorithm. From Linux: deadlines of 0.5 s and 5 s, 16 requests a
    /// batch, at most two favoured batches in succession, aging after 10 s. Ours: requests of up to
    /// 512 KiB, and 64 async requests at a device, fewer if sync requests take more than twice
    /// their time.
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

    /// For a swap store that serves `depth` requests at once, a single one in `latency_ns`. Demand
    /// reads are many single pages; readahead and write-out are long. Without a head, requests are
    /// only as long as efficiency needs, and writes wait for readers. Delays of demand up to three
    /// times the latency are accepted; beyond, async requests become fewer and shorter.
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
        ConfigError::check(counts.map(|(field, value)| (field, value.into(), value > 0, "at least 1")))
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
