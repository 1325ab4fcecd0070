//! What has happened, by the names that Linux gives it where it has one.

/// Counters of a region, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwapStats {
    /// Touches that found their page in memory, unmapped or write-protected, or never stored.
    pub minor_faults: u64,
    /// Touches that found their page out.
    pub major_faults: u64,
    /// Touches that found their page on its way, brought by readahead. They count as hits, too.
    pub late: u64,
    /// Pages read ahead (`swap_ra`).
    pub swap_ra: u64,
    /// Pages read ahead whose touch was seen (`swap_ra_hit`). With
    /// [`map_ahead`](super::PagerConfig::map_ahead) only those that were left unmapped can be.
    pub swap_ra_hit: u64,
    /// Pages mapped before they were touched: whether they were is not known.
    pub mapped_ahead: u64,
    /// Pages read ahead that left memory without having been touched as far as is known, those mapped ahead left out.
    pub wasted: u64,
    /// Pages read (`pswpin`).
    pub swap_in: u64,
    /// Pages written (`pswpout`).
    pub swap_out: u64,
    /// Pages that left memory without a write, since the store had them.
    pub dropped: u64,
    /// Pages that were all zeroes when they left, and were not written (`swpout_zero`).
    pub zero_out: u64,
    /// Pages that came into being as zeroes.
    pub zero_in: u64,
    /// Reads of the store.
    pub reads: u64,
    /// Writes to it.
    pub writes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed; their pages stayed in memory.
    pub write_errors: u64,
}

impl SwapStats {
    /// Share of pages read ahead whose touch was seen, from 0 to 1; none if there was no readahead.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.swap_ra > 0).then(|| self.swap_ra_hit as f64 / self.swap_ra as f64)
    }
}

/// How full things are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PagerLoad {
    /// Pages that may be in memory.
    pub frames: u64,
    /// Pages that are, or are on their way.
    pub frames_used: u64,
    /// Slots of the store, without its header.
    pub slots: u64,
    /// Those with a page.
    pub slots_used: u64,
    /// Touches that wait for memory.
    pub hungry: u64,
    /// Writes in flight.
    pub writes: u64,
    /// Reads in flight.
    pub reads: u64,
    /// Whether the store takes nothing more, so that memory cannot grow: it is full, or writes fail.
    pub blocked: bool,
}
