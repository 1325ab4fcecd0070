//! How a pager is set up.

use crate::config::ConfigError;
use crate::swap::{SwapConfig, SwapPolicy};

/// How a [`Pager`](super::Pager) is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagerConfig {
    /// Which swap readahead.
    pub policy: SwapPolicy,
    /// Its windows.
    pub window: SwapConfig,
    /// Most pages of a window of [`SwapPolicy::Adaptive`]; at least 8.
    pub ahead_max: u64,
    /// Pages that may be in memory, over all regions; at least 16.
    pub frames: u64,
    /// Slots of the store, with slot 0, which holds its header; from 2 to 2^32 - 1.
    pub slots: u64,
    /// Where pages go on the store.
    pub placement: Placement,
    /// How it is known which pages are in use.
    pub tracking: Tracking,
    /// Whose pages compete.
    pub lists: Lists,
    /// Whether readahead is mapped when it comes, but for the pages that tell how far a reader is. Without it each page
    /// of a window costs a fault, and tells that it was of use.
    pub map_ahead: bool,
    /// Most pages of a write; at least 1.
    pub write_pages: u32,
    /// Most writes in flight; at least 1.
    pub writes_max: u32,
    /// Room is made when fewer pages than this are free. At most a quarter of `frames`.
    pub low: u64,
    /// Until so many are; above `low`, at most half of `frames`.
    pub high: u64,
    /// Active pages for each inactive one, when room is made.
    pub inactive_ratio: u32,
    /// With [`Lists::Global`], pages of a region that are gathered before they join the list together, or until the region
    /// reads ahead. At least 1. Linux does so a processor, to take the lists' lock less often; it is why pages of one
    /// process lie together on its swap devices at all.
    pub list_batch: u32,
    /// Whether decisions are reported.
    pub explain: bool,
}

/// Where pages go on the store when they are written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// One behind the other in the order in which they are reclaimed, in clusters of 256 slots: as Linux.
    Reclaim,
    /// In order of addresses: what is written together is sorted, and runs of a region go on where its last one ended, so
    /// that a window is one request. Single pages share clusters as in [`Self::Reclaim`].
    Address,
}

/// How it is known which pages are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tracking {
    /// By accessed bits, as kernels do: every touch must be told with [`Pager::touch`](super::Pager::touch).
    Accessed,
    /// By faults: pages that have not been chosen for long are unmapped first, and a touch brings them back. Touches of
    /// mapped pages need not be told, and cannot be.
    Unmap,
}

/// Whose pages compete for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lists {
    /// All regions' in one pair of lists, by age alone: as Linux.
    Global,
    /// Each region's in its own; which region gives way depends on what each makes of its memory.
    PerRegion,
}

/// Slots that Linux gives out together.
pub(super) const CLUSTER: u64 = 256;
/// Largest number of slots: one less than 32 bits count.
const SLOTS_MAX: u64 = u32::MAX as u64;

impl PagerConfig {
    /// As Linux does it, with `frames` pages of memory and `slots` slots.
    #[must_use]
    pub fn linux(frames: u64, slots: u64, policy: SwapPolicy) -> Self {
        Self {
            policy,
            placement: Placement::Reclaim,
            tracking: Tracking::Accessed,
            lists: Lists::Global,
            map_ahead: false,
            write_pages: 32,
            writes_max: 8,
            list_batch: 15,
            // Linux's for less than a gigabyte is 1, for 10 GB it is 10: the square root of ten times the gigabytes.
            inactive_ratio: (10 * (frames >> 18)).isqrt().clamp(1, 1000) as u32,
            ..Self::own(frames, slots)
        }
    }

    /// As it is best, with `frames` pages of memory and `slots` slots.
    #[must_use]
    pub fn own(frames: u64, slots: u64) -> Self {
        Self {
            policy: SwapPolicy::Adaptive,
            window: SwapConfig::default(),
            ahead_max: 256,
            frames,
            slots,
            placement: Placement::Address,
            tracking: Tracking::Unmap,
            lists: Lists::PerRegion,
            map_ahead: true,
            write_pages: 128,
            writes_max: 128,
            low: (frames / 32).clamp(4, 4096),
            high: (frames / 16).clamp(8, 8192),
            inactive_ratio: 7,
            list_batch: 1,
            explain: false,
        }
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.window.validate()?;
        let checks = [
            ("ahead_max", self.ahead_max, self.ahead_max >= 8, "at least 8"),
            ("frames", self.frames, self.frames >= 16, "at least 16 pages"),
            ("slots", self.slots, (2..=SLOTS_MAX).contains(&self.slots), "from 2 to 2^32 - 1"),
            ("write_pages", self.write_pages.into(), self.write_pages > 0, "at least 1"),
            ("list_batch", self.list_batch.into(), self.list_batch > 0, "at least 1"),
            ("writes_max", self.writes_max.into(), self.writes_max > 0, "at least 1"),
            ("low", self.low, self.low <= self.frames / 4, "at most a quarter of frames"),
            (
                "high",
                self.high,
                self.high > self.low && self.high <= self.frames / 2,
                "above low, at most half of frames",
            ),
        ];
        match checks.into_iter().find(|check| !check.2) {
            Some((field, value, _, bound)) => Err(ConfigError { field, value, bound }),
            None => Ok(()),
        }
    }
}
