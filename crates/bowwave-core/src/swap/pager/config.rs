//! Settings of a pager.

use crate::config::ConfigError;
use crate::swap::{SwapConfig, SwapPolicy};

/// Settings of a [`Pager`](super::Pager).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagerConfig {
    /// Swap readahead policy.
    pub policy: SwapPolicy,
    /// Window sizes of the policy.
    pub window: SwapConfig,
    /// Largest window of [`SwapPolicy::Adaptive`], in pages; at least 8.
    pub ahead_max: u64,
    /// Most pages in memory, over all regions; at least 16.
    pub frames: u64,
    /// Slots of the store, including slot 0, the header; 2 to 2^32 - 1.
    pub slots: u64,
    /// Placement of pages on the store.
    pub placement: Placement,
    /// How the pager learns which pages are in use.
    pub tracking: Tracking,
    /// Which pages compete for memory.
    pub lists: Lists,
    /// Map readahead of [`SwapPolicy::Adaptive`] when it arrives, except marks. Without it each
    /// page of a window costs a fault, which shows that the page was used. Other policies need
    /// these faults: they size windows by hits.
    pub map_ahead: bool,
    /// Most pages of a write; at least 1.
    pub write_pages: u32,
    /// Most writes in flight; at least 1.
    pub writes_max: u32,
    /// Free pages below which eviction starts. At most a quarter of `frames`.
    pub low: u64,
    /// Free pages at which eviction stops; above `low`, at most half of `frames`.
    pub high: u64,
    /// Active pages for each inactive one, the target of eviction.
    pub inactive_ratio: u32,
    /// With [`Lists::Global`]: pages of a region that are batched before they join the list
    /// together, or until the region reads ahead. At least 1. Linux batches for each processor to
    /// take the list lock less often; this keeps pages of one process together on its swap devices.
    pub list_batch: u32,
    /// Report decisions.
    pub explain: bool,
}

/// Settings that [`Pager::tune`](super::Pager::tune) changes at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapTuning {
    /// As [`PagerConfig::policy`].
    pub policy: SwapPolicy,
    /// As [`PagerConfig::window`].
    pub window: SwapConfig,
    /// As [`PagerConfig::ahead_max`].
    pub ahead_max: u64,
}

/// Placement of pages on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In the order of eviction, in clusters of 256 slots: as Linux.
    Reclaim,
    /// In the order of addresses. Pages written together are sorted, and runs of a region continue
    /// where its last run ended, so a window is one request. Single pages share clusters as in
    /// [`Self::Reclaim`].
    Address,
}

/// How the pager learns which pages are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tracking {
    /// By accessed bits, as kernels do: every touch must be reported with
    /// [`Pager::touch`](super::Pager::touch).
    Accessed,
    /// By faults: old pages are unmapped before they are evicted, and a touch maps them again.
    /// Touches of mapped pages are not reported.
    Unmap,
}

/// Which pages compete for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lists {
    /// Pages of all regions in one pair of lists, by age alone: as Linux.
    Global,
    /// Pages of each region in its own lists; the region with the lowest marginal benefit is
    /// evicted from.
    PerRegion,
}

/// Slots of a cluster, as in Linux.
pub(super) const CLUSTER: u64 = 256;
/// Largest number of slots.
const SLOTS_MAX: u64 = u32::MAX as u64;

impl PagerConfig {
    /// Linux's settings, with `frames` pages of memory and `slots` slots.
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
            // Linux: 1 below 1 GB, 10 for 10 GB; the square root of ten times the gigabytes.
            inactive_ratio: (10 * (frames >> 18)).isqrt().clamp(1, 1000) as u32,
            ..Self::own(frames, slots)
        }
    }

    /// bowwave's settings, with `frames` pages of memory and `slots` slots.
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

    /// Whether readahead is mapped when it arrives.
    pub(super) const fn maps_ahead(&self) -> bool {
        self.map_ahead && matches!(self.policy, SwapPolicy::Adaptive)
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.window.validate()?;
        ConfigError::check([
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
        ])
    }
}
