//! Settings and counters of `range`.

use crate::stats::Stats;

/// Settings of [`Policy::Range`](crate::Policy::Range). Sizes are rounded down to whole pages, but
/// at least one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeConfig {
    /// Bytes. Faults at most this far apart form a cluster; also the largest window around a fault.
    /// At least 64 KiB, or 0 for no such windows. Default: 1 MiB.
    pub range_bytes: u64,
    /// Bytes. Files up to this size are read whole at the second read; 0 for never. Default: 4 MiB.
    pub whole_bytes: u64,
    /// Bytes. Largest window, and most bytes of strided blocks in it. 64 KiB to 1 TiB. Default:
    /// 256 MiB.
    pub file_bytes_max: u64,
    /// Readahead in clusters of mapped faults.
    pub clusters: Clusters,
    /// Bytes that a cache in front, such as the kernel's of a mount, reads around a fault. A read
    /// of this size out of order counts as a fault, and so do the sequential reads after it.
    /// Default: 0, no such cache.
    pub fault_bytes: u64,
}

/// Readahead in clusters: mapped faults near each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Clusters {
    /// [`Learned`](Self::Learned) for offset-mapped files
    /// ([`Cache::map_by_offset`](crate::Cache::map_by_offset)), where it saves four of five waits
    /// and fetches no more; else [`Fixed`](Self::Fixed).
    #[default]
    Suited,
    /// Lustre's patch of 2021 with two fixes. The window around a page includes its first page; in
    /// the patch it begins one page later. A cluster may begin at page 0; in the patch index 0
    /// means "no cluster".
    Fixed,
    /// `Fixed`, plus a prediction for drivers that map more than the touched page, on stores where
    /// each wait is long. It assumes that a reader that touched clusters upward does so again:
    ///
    /// - The first fault of a cluster reads ahead the width of the widest known cluster: of the
    ///   file's last 32, and of this handle's last 8. At most twice the mean of the file's last 8,
    ///   or, from its fourth cluster on, twice the mean of this handle's own.
    /// - A fault that continues the cluster reads ahead half of that.
    /// - While no cluster of the file has ended, the second adjacent touch reads ahead half a
    ///   range, and later ones the width so far.
    ///
    /// Clusters that are not touched upward get what `Fixed` reads.
    Learned,
    /// The rules of another crate.
    Other(&'static ClusterRules),
}

/// Readahead in clusters of mapped faults, for [`Clusters::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterRules {
    /// Whether there are windows around faults.
    pub ranges: bool,
    /// Pages at the start of a window around a fault that are not read.
    pub skipped_pages: u64,
    /// A cluster that begins at page 0 counts as none.
    pub page_0_is_none: bool,
    /// Sequential mapped faults after which the window grows. `None` for the number of pages in
    /// [`RangeConfig::range_bytes`].
    pub growth_faults: Option<u64>,
}

impl ClusterRules {
    /// The rules of [`Clusters::Fixed`].
    pub const FIXED: Self =
        Self { ranges: true, skipped_pages: 0, page_0_is_none: false, growth_faults: None };
}

named_enum! {
    /// Counters of `range` beside [`Stats`](crate::Stats), named as in Lustre's `read_ahead_stats`.
    /// Of its other counters, `read but discarded` is `pages_wasted + pages_thrashed`, and
    /// `readahead pages` is `pages_readahead`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum RangeEvent {
        /// First uses of pages that were read ahead.
        Hits = "hits",
        /// Missing pages.
        Misses = "misses",
        /// Reads or faults out of order.
        ReadpageNotConsecutive = "readpage not consecutive",
        /// Missing pages that had been read ahead: they were evicted before their use.
        MissInsideWindow = "miss inside window",
        /// Decisions with nothing to read ahead.
        ZeroSizeWindow = "zero size window",
        /// Windows that reached the end of the file.
        ReadaheadToEof = "read-ahead to EOF",
        /// Windows that the budget cut or refused.
        HitMaxReadaheadIssue = "hit max r-a issue",
        /// Windows shortened by alignment, by the budget, or in a stride.
        FailedToReachEnd = "failed to reach end",
        /// Windows requested while no reader waited.
        AsyncReadahead = "async readahead",
        /// Pages read ahead whose reader had to plan more readahead.
        FailedToFastRead = "failed to fast read",
        /// Windows around a mapped fault.
        MmapRangeRead = "mmap range read",
    }
}

impl RangeEvent {
    /// How often the event happened, while `range` was the policy.
    pub fn of(self, stats: &Stats) -> u64 {
        stats.counter(self as usize)
    }
}

impl Default for RangeConfig {
    fn default() -> Self {
        Self {
            range_bytes: 1 << 20,
            whole_bytes: 4 << 20,
            file_bytes_max: 256 << 20,
            clusters: Clusters::Suited,
            fault_bytes: 0,
        }
    }
}
