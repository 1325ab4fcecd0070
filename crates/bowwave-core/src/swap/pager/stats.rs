//! Counters, with Linux's names where Linux has them.

/// Counters of a region, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwapStats {
    /// Touches of a page in memory that was unmapped or write-protected, or of a page never stored.
    pub minor_faults: u64,
    /// Touches of a swapped-out page.
    pub major_faults: u64,
    /// Touches of a page in flight by readahead. They also count as hits.
    pub late: u64,
    /// Pages read ahead (`swap_ra`).
    pub swap_ra: u64,
    /// Pages read ahead whose touch was seen (`swap_ra_hit`). With
    /// [`map_ahead`](super::PagerConfig::map_ahead), only pages left unmapped can count.
    pub swap_ra_hit: u64,
    /// Pages mapped before they were touched; whether they were used is unknown.
    pub mapped_ahead: u64,
    /// Pages read ahead and evicted without a known touch, except pages mapped ahead.
    pub wasted: u64,
    /// Pages read (`pswpin`).
    pub swap_in: u64,
    /// Pages written (`pswpout`).
    pub swap_out: u64,
    /// Pages evicted without a write, since the store had them.
    pub dropped: u64,
    /// Evicted pages that were all zeros and not written (`swpout_zero`).
    pub zero_out: u64,
    /// Pages created as zeros.
    pub zero_in: u64,
    /// Reads of the store.
    pub reads: u64,
    /// Writes to the store.
    pub writes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed; their pages stayed in memory.
    pub write_errors: u64,
}

impl SwapStats {
    /// Share of pages read ahead whose touch was seen, 0 to 1; none without readahead.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.swap_ra > 0).then(|| self.swap_ra_hit as f64 / self.swap_ra as f64)
    }
}

/// Current load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PagerLoad {
    /// Most pages in memory.
    pub frames: u64,
    /// Pages in memory or in flight.
    pub frames_used: u64,
    /// Slots of the store, without the header.
    pub slots: u64,
    /// Slots in use.
    pub slots_used: u64,
    /// Touches that wait for memory.
    pub hungry: u64,
    /// Writes in flight.
    pub writes: u64,
    /// Reads in flight.
    pub reads: u64,
    /// Whether memory cannot grow because the store is full or writes fail.
    pub blocked: bool,
}
