//! How a scheduler is set up, checked once.

use core::fmt;
use core::str::FromStr;

use crate::config::ConfigError;

/// In which order requests go to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// In order of arrival, merged.
    Noop,
    /// Linux 2.6.29's deadline: reads before writes.
    DeadlineRw,
    /// Sync before async, as the patch of 2009 intended, with a floor for async.
    Deadline,
    /// The same patch to the letter.
    Literal,
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
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Noop, Self::DeadlineRw, Self::Deadline, Self::Literal];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::DeadlineRw => "deadline-rw",
            Self::Deadline => "deadline",
            Self::Literal => "deadline-literal",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses the name on the command line; the error lists the names there are.
impl FromStr for Algorithm {
    type Err = &'static str;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or("no such scheduler; there are noop, deadline-rw, deadline, deadline-literal")
    }
}
