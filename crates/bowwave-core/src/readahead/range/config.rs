//! What can be set, and what is counted.

use crate::stats::Stats;

/// The finer points of [`Policy::Range`](crate::Policy::Range). Bytes are rounded down to pages, but to no less than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeConfig {
    /// Mapped faults at most so many bytes apart belong together, and a window around one of them is no larger. 0 or at
    /// least 64 KiB; 0 for no such windows. 1 MiB by default.
    pub range_bytes: u64,
    /// Files up to this many bytes are read whole at the second read. 4 MiB by default; 0 for never.
    pub whole_bytes: u64,
    /// Most bytes of a window, and of the pages of a stride in it. 256 MiB by default. 64 KiB to 1 TiB.
    pub file_bytes_max: u64,
    /// What is done about clusters of mapped faults.
    pub clusters: Clusters,
    /// A read out of order of just so many bytes is not a program's, but what another cache in front reads around a fault of a
    /// mapped page, as the kernel does on a mount. It counts as a fault, and so do the reads in order that follow. 0, the
    /// default, if there is no such cache.
    pub fault_bytes: u64,
}

/// What is done about clusters of mapped faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Clusters {
    /// As [`Learned`](Self::Learned) in files whose pages a driver maps ([`Cache::map_by_offset`](crate::Cache::map_by_offset)), where it
    /// saves four waits of five and fetches no more, and else as [`Fixed`](Self::Fixed).
    #[default]
    Suited,
    /// Document 003, mended in two places: the window around a page begins with its first page (003 asks for half a
    /// window before the page and then begins a page later), and a cluster may consist of page 0 (003 takes its index for
    /// "none so far").
    Fixed,
    /// As mended, for drivers that map more than the page touched, and stores where each wait counts: who has touched clusters
    /// from front to back will do so again. The first fault of the next one is answered with as much ahead of it as the
    /// widest of the file's last 32 had, through whichever handle, or of this handle's last eight, but not twice the mean of the file's last
    /// eight, nor, once it had four, of the handle's own; a cluster that goes on gets half as much again. As long as none has ended in the
    /// file, the second touch in a row gets half a range, and what goes on as much as it already has. Elsewhere, and where touches are in
    /// no order, nothing changes.
    Learned,
    /// As another crate has it.
    Other(&'static ClusterRules),
}

/// What another crate does about clusters of mapped faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterRules {
    /// Whether there are windows around faults.
    pub ranges: bool,
    /// Pages of a window around a fault, from its first page on, that are not read.
    pub skipped_pages: u64,
    /// The index of page 0 stands for "no cluster so far".
    pub page_0_is_none: bool,
    /// Mapped faults in order after which the window grows. None for the pages of
    /// [`RangeConfig::range_bytes`].
    pub growth_faults: Option<u64>,
}

impl ClusterRules {
    /// The rules of [`Clusters::Fixed`].
    pub const FIXED: Self =
        Self { ranges: true, skipped_pages: 0, page_0_is_none: false, growth_faults: None };
}

named_enum! {
    /// What `range` counts besides [`Stats`](crate::Stats), by the names of the original's `read_ahead_stats`. Of its other
    /// counters, `read but discarded` is `pages_wasted + pages_thrashed`, and `readahead pages` is `pages_readahead`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum RangeEvent {
        /// Pages that were read ahead when first used.
        Hits = "hits",
        /// Pages that were absent.
        Misses = "misses",
        /// Reads or faults out of order.
        ReadpageNotConsecutive = "readpage not consecutive",
        /// Pages absent that had been read ahead: evicted before their use.
        MissInsideWindow = "miss inside window",
        /// There was nothing to read ahead.
        ZeroSizeWindow = "zero size window",
        /// Windows that reached the end of the file.
        ReadaheadToEof = "read-ahead to EOF",
        /// Windows that the budget cut or refused.
        HitMaxReadaheadIssue = "hit max r-a issue",
        /// Windows that ended earlier than they were meant to: by alignment, by the budget, or within a stride.
        FailedToReachEnd = "failed to reach end",
        /// Windows asked for that no reader waits for.
        AsyncReadahead = "async readahead",
        /// Pages read ahead that the reader could not take without looking for more to read ahead.
        FailedToFastRead = "failed to fast read",
        /// Windows around a mapped fault.
        MmapRangeRead = "mmap range read",
    }
}

impl RangeEvent {
    /// How often the event happened, while `range` was the policy.
    #[must_use]
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
